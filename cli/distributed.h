// Commands that several processes carry out together.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "remcaps/torch/process_group.h"

namespace remcaps::cli {

/// --distributed and --timeout.
struct DistributedOptions {
  std::string mode = "auto";
  int64_t timeout = 300;

  void add_to(CLI::App& command);

  /// Calls `work` with the device and, if a launcher started several processes, their group. Only
  /// rank 0 prints what is not an error.
  void run(const std::string& device,
           const std::function<void(torch::Device, ProcessGroup*)>& work) const;
};

/// Whether this process prints the result and writes files.
inline bool writes(const ProcessGroup* group) {
  return group == nullptr || group->rank() == 0;
}

}  // namespace remcaps::cli
