// What figures read: runs, their data, and passes over them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/evaluation/split_trees.h"
#include "remcaps/explain/picture.h"
#include "remcaps/report/figure.h"
#include "remcaps/runs/load.h"

namespace remcaps {

/// "RUN@CHECKPOINT" taken apart; the checkpoint is empty where none is named.
struct RunArgument {
  std::filesystem::path path;
  std::string checkpoint;
};
RunArgument parse_run_argument(const std::string& argument);

struct RunName {
  std::string argument;  ///< as the user gave it
  std::string recipe;
  int64_t seed = 0, epoch = 0;
};
/// "fashion-mnist/dr-capsnet-rem", with what else it takes to tell the runs apart.
std::vector<std::string> distinct_labels(const std::vector<RunName>& names);

/// A run with the images a figure measures.
struct FigureRun {
  std::string label;  ///< tells the figure's runs apart
  LoadedRun run;
  std::shared_ptr<const DataSplits> data;
  Dataset part;  ///< the split, cut to the limit
  Quantizers quantizers;

  int64_t classes() const { return run.model->classes(); }
  std::string class_name(int64_t class_index) const;
  BatchSource source() const;

  /// One pass with traces and quantized couplings; `what` labels the progress bar.
  void pass(const std::string& what,
            const std::function<void(const Batch&, const Forward&)>& on_batch) const;
  ParseTreeReport trees(const Quantizers& with, const std::string& what) const;

  /// Forward pass of some images of the part, traced and quantized.
  Forward forward(const Batch& batch, bool quantized = true) const;
  Batch batch(const std::vector<int64_t>& places) const;
  /// An image as the network's geometry has it.
  Picture picture(const Tensor& normalised) const;
};

/// Loads every run; runs of one data set share it.
std::vector<FigureRun> load_figure_runs(const FigureOptions& options);
/// Error where not exactly one run is given.
FigureRun load_one_run(const FigureOptions& options, const std::string& figure);

/// Error where the runs do not have the same classes (figures that compare class by class).
void check_same_classes(const std::vector<FigureRun>& runs);

/// options.images, or the first image of each class, at most `most`. Error for places outside.
std::vector<int64_t> shown_images(const FigureOptions& options, const FigureRun& run, size_t most);

/// "fashion-mnist, 10,000 test images"
std::string data_line(const FigureOptions& options, const FigureRun& run);

}  // namespace remcaps
