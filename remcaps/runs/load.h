// Loading a trained network from a run folder or a weights file.
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
  int64_t epoch = 0;              ///< the epoch, from 0, after which the weights were saved
  std::filesystem::path weights;  ///< the file they came from
  std::filesystem::path
      data_root;  ///< the run's data folder if it exists; empty for a weights file
  torch::Device device = torch::kCPU;
  /// On a GPU the precision of the recipe. On a CPU float32, so that results are the same on every
  /// CPU.
  std::string precision = "float32";

  /// The name of a class, or its index if it has no name.
  std::string class_name(int64_t class_index) const;

  /// Sets another precision. On a GPU `tf32` applies to the whole process.
  void compute_in(const std::string& given);

  /// Options for evaluating it: the margins of its epoch, precision and kernels.
  EvaluateOptions evaluation() const;

  /// The run's data set. `from_command_line` is --data. If it is empty, the folder with which the
  /// run was trained is tried before the default folders.
  DataSplits load_data(const std::string& from_command_line) const;

  /// A split as batches on the device. Its note, if it has one, is said on stderr.
  BatchSource source(const DataSplits& data, const std::string& split) const;

  /// The same for some images of a split. Only these are resized.
  BatchSource source(const Dataset& images, const std::string& split) const;

  /// A picture of any size as the network's input, float32 [1, C, H, W] on the device. The picture
  /// is stretched to the input's size, and becomes grey if the network was trained on grey images.
  /// `invert` makes a negative: MNIST's digits are white on black.
  torch::Tensor read_input(const std::filesystem::path& image, bool invert = false) const;
};

/// `path` is a run folder, a weights file (compressed or not) or a name of the zoo
/// ("zoo:mnist/dr-capsnet-rem"). From a run folder it loads the best checkpoint, or the last if the
/// run prunes; `checkpoint` selects another: "best", "last" or "epoch-0012". Error if a file is
/// missing, damaged or does not match.
LoadedRun load_run(const std::filesystem::path& path, torch::Device device,
                   const std::string& checkpoint = "");

/// Copies the tensors of a trained network (a run folder or weights file) into those of `model`
/// that have the same name. Error if there are none or if shapes differ.
void start_from(CapsNet& model, const std::filesystem::path& trained);
void start_from(CapsNet& model, const LoadedRun& trained);

/// The data folder of a run: --data if given, otherwise the one in its run.json if that still
/// exists, otherwise the default.
std::filesystem::path run_data_root(const RunFolder& folder, const std::string& from_command_line);

}  // namespace remcaps
