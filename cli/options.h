// Options that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/data/dataset.h"
#include "remcaps/torch/runtime.h"

namespace remcaps::cli {

/// A check of a number. `help` follows the option's type in the help. CLI11's own checks print 300
/// digits if there is no upper limit.
inline CLI::Validator number_that(const std::function<bool(double)>& holds,
                                  const std::string& expected, const std::string& help = "") {
  const auto message = [=](const std::string& word) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool number = error == std::errc() && end == word.data() + word.size();
    return number && holds(value) ? "" : fmt::format("{}; expected {}", word, expected);
  };
  return CLI::Validator(message, help);
}

/// Including both ends.
inline CLI::Validator between(double least, double most) {
  return number_that([=](double value) { return value >= least && value <= most; },
                     fmt::format("{:g} to {:g}", least, most),
                     fmt::format("{:g}..{:g}", least, most));
}

inline CLI::Validator at_least(double least) {
  constexpr double kMost = 9e18;  // int64_t ends a little above, and CLI11 cuts what is larger
  return number_that([=](double value) { return value >= least && value <= kMost; },
                     fmt::format("{:g} or more", least));
}

inline CLI::Validator above_zero() {
  constexpr double kMost = std::numeric_limits<double>::max();
  return number_that([](double value) { return value > 0 && value <= kMost; }, "more than 0");
}

/// Prints to stderr, for people and not for programs.
inline void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) say("note: {}", note);
}

/// --threads
inline void add_threads(CLI::App& command) {
  command
      .add_option_function<int>(
          "--threads", [](int threads) { use_threads(threads); },
          "CPU threads to use (default: $OMP_NUM_THREADS, else one for each core)")
      ->check(between(1, 1024));
}

/// --device, --data and --threads.
struct PlaceOptions {
  std::string device = default_device();
  std::string data;
  const CLI::Option* device_option = nullptr;

  void add_to(CLI::App& command) {
    device_option =
        command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
    command.add_option("--data", data,
                       "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps)");
    add_threads(command);
  }
  bool gives_device() const { return device_option != nullptr && device_option->count() > 0; }
};

constexpr const char* kFolderHelp =
    "The folder the data set's files are in; for recipes of folder/: the pictures, one sub-folder "
    "a "
    "class";

/// --folder; absolute, so that a run finds its pictures from anywhere.
inline void use_folder(DatasetOptions& dataset, const std::string& folder) {
  if (!folder.empty()) dataset.folder = std::filesystem::absolute(folder).string();
}

}  // namespace remcaps::cli
