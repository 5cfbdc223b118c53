// The training loop: steps, validation, pruning, checkpoints, metrics.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "remcaps/data/batches.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/runs/metrics.h"
#include "remcaps/runs/run_folder.h"
#include "remcaps/runs/summary.h"
#include "remcaps/training/checkpoint.h"
#include "remcaps/training/display.h"
#include "remcaps/training/step_graph.h"

namespace remcaps {

struct TrainingHooks {
  /// Called every metrics.every epochs, after pruning and the test pass, to add what it measures to
  /// the epoch's row (the parse trees' entropy, for one).
  std::function<void(const Recipe&, CapsNet&, const BatchSource& test, EpochRecord&)> measure;
};

/// Sets what the whole process shares: determinism, TF32.
void apply_runtime_options(const Recipe& recipe);

/// One run, from its first step or from where its folder says it was left.
///
/// Order of an epoch, as published: train, validate, prune, save best where the validation loss
/// (before pruning) is a new minimum, save last and state where it is time to. The test set is
/// looked at every metrics.every epochs, after pruning, for metrics.csv only: no decision depends
/// on it.
class Trainer {
 public:
  /// Builds everything. `folder` is a fresh one, or that of a run to go on with: where it holds a
  /// state.safetensors, run() starts from there.
  Trainer(Recipe recipe, const DataSplits& data, RunFolder folder, torch::Device device,
          TrainingHooks hooks = {});

  /// Trains until a limit of the recipe is reached. `minutes` stands in for the recipe's time limit
  /// and counts from now, not from the run's first step; 0: none. Throws Interrupted after SIGINT
  /// or SIGTERM (the state is saved) and Error where a loss is not finite.
  RunSummary run(std::optional<double> minutes = std::nullopt);

  const Recipe& recipe() const { return recipe_; }
  const RunFolder& folder() const { return folder_; }
  CapsNet& model() { return *model_; }

 private:
  using Clock = std::chrono::steady_clock;

  void freeze();
  void train_mode();
  void start();
  /// "epochs", "accuracy", "minutes" or "patience"; empty while the run goes on.
  std::string reason_to_stop() const;
  void train_epoch();
  void train_step();
  void end_epoch();
  void warn_if_saturated(const EpochRecord& record) const;
  void validate(EpochRecord& record);
  void prune(EpochRecord& record);
  void measure_test(EpochRecord& record);
  RunSummary finish(const std::string& reason);

  Batch batch_of(int64_t position) const;
  PruningContext pruning_context();
  /// What a threshold search compares.
  double search_loss();
  Quantizers quantizers() const;

  /// Once a second, and wherever a result depends on it: reads the sums back from the device.
  void look_at_sums();
  [[noreturn]] void stop_not_finite(int64_t position);
  void stop_if_interrupted();
  bool checkpoint_is_due() const;        ///< within an epoch
  bool epoch_checkpoint_is_due() const;  ///< at its end
  void save_state_now();
  void save_epoch();  ///< last and state after an epoch, where they are not saved yet
  WeightsInfo weights_info(int64_t epoch) const;
  double seconds() const;
  bool out_of_time() const;

  Recipe recipe_;
  RunFolder folder_;
  torch::Device device_;
  TrainingHooks hooks_;
  std::vector<std::string> class_names_;
  std::map<std::string, Dataset> extra_;  ///< further splits, measured when the run ends
  ModelContext context_;
  std::shared_ptr<CapsNet> model_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<BatchSource> train_, validation_, test_;  ///< test_ may be null
  std::unique_ptr<StepGraph> graph_;                        ///< null where steps are not recorded
  std::unique_ptr<EvaluationPass> search_pass_;             ///< null before the first search
  MarginOptions search_margin_;                             ///< what it was made for
  std::unique_ptr<MetricsFile> metrics_;
  TrainingDisplay display_;

  RunProgress progress_;
  EpochSums sums_;
  Clock::time_point begin_, looked_, saved_at_, epoch_saved_at_;
  int64_t saved_epochs_ = 0;   ///< epochs that `last` has behind it
  double seconds_before_ = 0;  ///< of training before this process
  double limit_seconds_ = 0;   ///< of training in all; 0: no limit
  std::string last_saved_;     ///< "epoch 3, step 1,200", for messages
};

}  // namespace remcaps
