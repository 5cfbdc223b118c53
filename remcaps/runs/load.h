// A trained network, from a run folder or a weights file, ready to be used.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/data/batches.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/runs/run_folder.h"
#include "remcaps/runs/weights.h"

namespace remcaps {

struct LoadedRun {
  Recipe recipe;
  std::shared_ptr<CapsNet> model;  ///< on `device`, in evaluation mode
  ModelContext context;
  std::vector<std::string> class_names;
  int64_t epoch = 0;                ///< the weights are of the end of this epoch, from 0
  std::filesystem::path weights;    ///< the file they came from
  std::filesystem::path data_root;  ///< where the run found its data; empty for a lone weights file
  torch::Device device = torch::kCPU;
  /// What it computes in: on a GPU the recipe's precision; on a CPU float32 whatever the recipe
  /// says, so that a network measures the same on every one.
  std::string precision = "float32";

  /// The class's name, or its index where it has none.
  std::string class_name(int64_t class_index) const;

  /// Another precision than that; `tf32` holds for all of a GPU's runs.
  void compute_in(const std::string& given);

  /// How to evaluate it: margins of its epoch, precision and kernels.
  EvaluateOptions evaluation() const;

  /// The run's data set. `from_command_line` is --data; where it is empty the folder the run was
  /// trained from is tried before the usual places.
  DataSplits load_data(const std::string& from_command_line) const;

  /// A split as batches on the device.
  BatchSource source(const DataSplits& data, const std::string& split) const;

  /// The same for some images of a split: only these are resized.
  BatchSource source(const Dataset& images, const std::string& split) const;

  /// A picture of any size, as the network's input: float32 [1, C, H, W] on the device. It is
  /// stretched to the input's height and width, colour becomes grey where the network was trained
  /// on grey images, and light stays light: `invert` makes the negative, a black digit on paper as
  /// MNIST has it.
  torch::Tensor read_input(const std::filesystem::path& image, bool invert = false) const;
};

/// `path` is a run folder (its best checkpoint, or its last where the run prunes), a weights file,
/// packed or not, or a name from the zoo ("zoo:mnist/dr-capsnet-rem"). `checkpoint` picks another
/// one of a run folder: "best", "last" or "epoch-0012". Error: one line for a missing, damaged or
/// mismatched file.
LoadedRun load_run(const std::filesystem::path& path, torch::Device device,
                   const std::string& checkpoint = "");

/// Copies into `model` what a trained network (a run folder or weights file) has of its tensors;
/// the rest keeps its values. Error where they have nothing in common or shapes differ.
void start_from(CapsNet& model, const std::filesystem::path& trained);
void start_from(CapsNet& model, const LoadedRun& trained);

/// The data folder of a run: --data where given, else the one in its run.json where that still
/// exists, else the usual one.
std::filesystem::path run_data_root(const RunFolder& folder, const std::string& from_command_line);

}  // namespace remcaps
