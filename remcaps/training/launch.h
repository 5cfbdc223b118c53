// Starting a run in a new folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/training/trainer.h"

namespace remcaps {

/// Reads "42", "42,45", "42..46" or a mixture of them.
std::vector<int64_t> parse_seeds(const std::string& text);

/// A trainer in a new folder parent/seed-<n>. If the run cannot be built, the folder is removed.
/// `data_root` is written to run.json for later commands. The processes of a group share the
/// folder.
std::unique_ptr<Trainer> start_run(const Recipe& recipe, const DataSplits& data,
                                   const std::filesystem::path& parent,
                                   const std::filesystem::path& data_root, torch::Device device,
                                   ProcessGroup* group = nullptr);

}  // namespace remcaps
