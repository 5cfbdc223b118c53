// The runs that figures and the HTML report show, with their labels, data and passes over them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/evaluation/split_trees.h"
#include "remcaps/explain/picture.h"
#include "remcaps/runs/load.h"

namespace remcaps {

/// Which runs, and which of their images.
struct RunSelection {
  /// Run folders, weights files or zoo:NAME; "RUN@epoch-0012" picks another checkpoint of a run.
  std::vector<std::string> runs;
  std::string data;  ///< folder of the data sets; empty: where each run found its own
  torch::Device device = torch::kCPU;
  std::string split = "test";  ///< whose images are measured and shown
  int64_t limit = 0;           ///< measure only the first `limit` images; 0: all
};

/// "RUN@CHECKPOINT" split into its parts; the checkpoint is empty if none is named.
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
/// A different label for each run: its recipe, and the seed, the epoch or the part of its path that
/// tells it from the others. Several runs of one data set leave out the data set:
/// "dr-capsnet, seed 42".
std::vector<std::string> run_labels(const std::vector<RunName>& names);

/// A trained network with the images it is measured on.
struct ShownRun {
  std::string label;     ///< differs from the labels of the other runs
  std::string argument;  ///< as the user gave it
  std::string split;
  LoadedRun run;
  std::shared_ptr<const DataSplits> data;
  Dataset part;  ///< the split, cut to the limit
  Quantizers quantizers;

  int64_t classes() const { return run.model->classes(); }
  std::string class_name(int64_t class_index) const { return run.class_name(class_index); }
  BatchSource source() const { return run.source(part, split); }
  /// The class layer's quantizer. Error if the recipe has none.
  const Quantizer& class_quantizer() const;

  /// One pass with traces and quantized couplings; `what` labels the progress bar.
  void pass(const std::string& what,
            const std::function<void(const Batch&, const Forward&)>& on_batch,
            bool contributions = false) const;
  /// `parts`: with the effective parts of the answers.
  ParseTreeReport trees(const Quantizers& with, const std::string& what, bool parts = false) const;

  /// Forward pass of some images, with traces, contributions and quantized couplings.
  Forward forward(const Batch& batch) const;
  Batch batch(const std::vector<int64_t>& places) const;
  /// An image of a batch as a picture.
  Picture picture(const Tensor& normalised) const;
  /// "fashion-mnist, 10,000 test images"
  std::string data_line() const;
};

/// Loads every run. Runs that read the same data share it.
std::vector<ShownRun> load_shown_runs(const RunSelection& selection);

/// Error if the runs do not have the same classes (for figures that compare class by class).
void check_same_classes(const std::vector<ShownRun>& runs);

}  // namespace remcaps
