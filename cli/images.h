// The images a command line names: files, and places in a split of the run's data set.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/runs/load.h"

namespace remcaps::cli {

/// The images of a command and what is done to its files.
struct ImageOptions {
  std::vector<std::string> words;
  bool invert = false;

  void add_to(CLI::App& command);
};

/// For the footers: what becomes of a file.
constexpr const char* kPicturesHelp =
    "A file of any size is stretched to the network's input, whatever its shape, and turned into\n"
    "grey where the network knows grey images only. Light stays light: MNIST and Fashion-MNIST\n"
    "are light on black, so a dark digit or garment on a light ground needs --invert.";

struct ImageInput {
  std::string name;                     ///< as the user gave it, "test:17" for each image of a list
  std::string stem;                     ///< for files about it, different for every image
  std::optional<std::string> label;     ///< its class, where the data set says it
  std::function<torch::Tensor()> read;  ///< [1, C, H, W]

  /// ", labelled bag" where the data set's class is not the given one; else nothing.
  std::string remark(const std::string& predicted) const;
};

/// Finds out about every image before the first one is used: a misspelt one stops the command while
/// nothing is written. Of files only the headers are read then: there may be more of them than the
/// memory holds. `run` is used by every read().
std::vector<ImageInput> list_images(const LoadedRun& run, const ImageOptions& options,
                                    const std::string& data_root);

}  // namespace remcaps::cli
