// Starting a run in a fresh folder, and going on with one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/training/trainer.h"

namespace remcaps {

/// "42", "42,45", "42..46" or a mixture. UsageError for anything else.
std::vector<int64_t> parse_seeds(const std::string& text);

/// A trainer in a fresh folder parent/seed-<n>. The folder is removed again where the run cannot be
/// built. `data_root` is noted in run.json for later commands.
std::unique_ptr<Trainer> start_run(const Recipe& recipe, const DataSplits& data,
                                   const std::filesystem::path& parent,
                                   const std::filesystem::path& data_root, torch::Device device,
                                   TrainingHooks hooks = {});

}  // namespace remcaps
