// The images on a command line: files, folders of files, or images of a split of the run's data
// set.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/runs/load.h"

namespace remcaps::cli {

/// The images of a command, and how files are changed.
struct ImageOptions {
  std::vector<std::string> words;
  bool invert = false;

  void add_to(CLI::App& command);
};

/// How a file becomes an input, for the help.
constexpr const char* kPicturesHelp =
    "A file of any size is stretched to the network's input, whatever its shape, and turned into\n"
    "grey where the network knows grey images only. Light stays light: MNIST and Fashion-MNIST\n"
    "are light on black, so a dark digit or garment on a light ground needs --invert.";

struct ImageInput {
  std::string name;                     ///< the file, or "test:17"
  std::string stem;                     ///< for names of output files, unique
  std::optional<std::string> label;     ///< its class, if known
  std::function<torch::Tensor()> read;  ///< [1, C, H, W]

  /// ", labelled bag" if the image's class differs from the given one, otherwise empty.
  std::string remark(const std::string& predicted) const;
};

/// What to do with a file that cannot be read.
using OnUnreadable = std::function<void(const std::string& file, const std::string& message)>;

/// Checks all images before the first is used, so that a misspelt name stops the command before it
/// writes anything; with `on_unreadable`, such a file is left out instead. Only the headers of
/// files are read, since all images may not fit into memory. `run` must outlive the result.
std::vector<ImageInput> list_images(const LoadedRun& run, const ImageOptions& options,
                                    const std::string& data_root,
                                    const OnUnreadable& on_unreadable = nullptr);

}  // namespace remcaps::cli
