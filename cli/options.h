// Options that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "remcaps/base/runtime.h"

namespace remcaps::cli {

/// --device and --data.
struct PlaceOptions {
  std::string device = default_device();
  std::string data;

  void add_to(CLI::App& command) {
    command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
    command.add_option("--data", data,
                       "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps)");
  }
};

}  // namespace remcaps::cli
