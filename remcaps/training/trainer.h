// The training loop: steps, validation, pruning, checkpoints, metrics.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "remcaps/capsule/loss.h"
#include "remcaps/data/batches.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/runs/metrics.h"
#include "remcaps/runs/run_folder.h"
#include "remcaps/runs/summary.h"
#include "remcaps/runs/weights.h"
#include "remcaps/training/checkpoint.h"
#include "remcaps/training/display.h"
#include "remcaps/training/step_graph.h"

namespace remcaps {

/// Sets determinism and TF32 for the whole process.
void apply_runtime_options(const Recipe& recipe);

/// Trains one run, from its first step or from its saved state.
///
/// The order of an epoch is the published one: train, validate, prune, save `best` if the
/// validation loss (before pruning) is a new minimum, save `last` and `state` if they are due.
/// Every metrics.every epochs the test set is measured after pruning, for metrics.csv only: no
/// decision depends on it.
class Trainer {
 public:
  /// Builds everything. `folder` is new, or that of a run to continue: if it has a
  /// state.safetensors, run() starts from there. If `group` is given, all its processes build the
  /// same trainer and train the run together; rank 0 writes the files.
  Trainer(Recipe recipe, const DataSplits& data, RunFolder folder, torch::Device device,
          ProcessGroup* group = nullptr);

  /// Trains until a limit of the recipe is reached. `minutes` replaces the recipe's time limit and
  /// counts from now, not from the first step of the run; 0: no limit. Throws Interrupted after
  /// SIGINT or SIGTERM, when the state is saved, and Error if a loss is not finite. PeerLost if
  /// another process is lost; the state is saved by rank 0, or by another if that is lost.
  RunSummary run(std::optional<double> minutes = std::nullopt);

  /// A function to call after every epoch, when its row is in metrics.csv. If it throws, the state
  /// is saved and run() throws the same.
  void on_epoch(std::function<void()> call) { on_epoch_ = std::move(call); }

  const Recipe& recipe() const { return recipe_; }
  const RunFolder& folder() const { return folder_; }
  CapsNet& model() { return *model_; }

 private:
  using Clock = std::chrono::steady_clock;

  // The loop (trainer.cpp).
  void freeze();
  void train_mode();
  RunSummary train_to_the_end(std::optional<double> minutes);
  /// "epochs", "accuracy", "minutes" or "patience"; empty if the run continues.
  std::string reason_to_stop() const;
  void train_epoch();
  void train_step();
  Batch batch_of(int64_t position) const;
  PruningContext pruning_context();
  Quantizers quantizers() const;
  EvaluateOptions evaluation(int64_t epoch) const;
  /// Reads the sums from the device: once a second, and before a result depends on them.
  void look_at_sums();
  /// Tells `remcaps status` how far the run is (runs/status.h).
  void note_progress(double loss, double accuracy);
  [[noreturn]] void stop_not_finite(int64_t position);
  double seconds() const;

  // The end of an epoch and of the run (trainer_epoch.cpp).
  void end_epoch();
  void validate(EpochRecord& record);
  void prune(EpochRecord& record);
  /// The loss that a threshold search compares.
  double search_loss();
  /// What it prefers: entropy, or effective parts.
  double search_trees(bool parts);
  /// What its groups of capsules give.
  GivenVotes search_votes();
  void stop_search_if_asked();
  void measure_test(EpochRecord& record);
  bool is_above_chance(const EpochRecord& record) const;
  void warn_if_saturated(const EpochRecord& record) const;
  void warn_if_pruned_at_chance(const EpochRecord& record);
  RunSummary finish(const std::string& reason);

  // Saving and resuming (trainer_state.cpp).
  void start();
  void stop_if_interrupted();
  [[noreturn]] void save_after_loss(const PeerLost& lost);
  bool checkpoint_is_due() const;        ///< within an epoch
  bool epoch_checkpoint_is_due() const;  ///< at its end
  void save_state_now();
  void write_state();
  void save_epoch();  ///< saves last and state after an epoch, unless they are saved already
  WeightsInfo weights_info(int64_t epoch) const;

  // What the processes of the run agree on (trainer_group.cpp).
  bool writes() const { return group_ == nullptr || group_->rank() == 0; }
  /// Error if a routing algorithm of the network needs the whole batch in one process.
  void check_can_be_divided() const;
  /// Error unless all processes have the same recipe and data.
  void check_same_run();
  /// Gives every process the weights of rank 0: processors of different kinds round differently.
  void share_weights();
  /// Error if the processes have pruned different weights.
  void check_same_masks();
  /// Looks for signals and at the time limit. All processes see the same.
  void look_for_stop();

  Recipe recipe_;
  RunFolder folder_;
  torch::Device device_;
  ProcessGroup* group_;  ///< null: this process alone
  std::vector<std::string> class_names_;
  std::map<std::string, Dataset> extra_;  ///< further splits, measured when the run ends
  std::string data_note_;                 ///< of the test set
  ModelContext context_;
  std::shared_ptr<CapsNet> model_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<BatchSource> train_, validation_, test_;  ///< test_ may be null
  std::unique_ptr<StepGraph> graph_;                        ///< null if steps are not recorded
  std::unique_ptr<EvaluationPass> search_pass_;             ///< null before the first search
  MarginOptions search_margin_;                             ///< the margins of search_pass_
  int64_t search_passes_ = 0;                               ///< of this epoch's search
  std::unique_ptr<MetricsFile> metrics_;  ///< null in a process that does not write
  TrainingDisplay display_;
  std::function<void()> on_epoch_;  ///< may be empty

  RunLock* lock_ = nullptr;  ///< while the run is in training

  RunProgress progress_;
  EpochSums sums_;
  Clock::time_point begin_, looked_, saved_at_, epoch_saved_at_;
  int64_t saved_epochs_ = 0;    ///< number of epochs after which `last` was saved
  double chance_accuracy_ = 0;  ///< share of the most frequent class of the validation set
  bool warned_at_chance_ = false;
  double seconds_before_ = 0;  ///< training time before this process
  double limit_seconds_ = 0;   ///< limit of the whole training time; 0: none
  /// Whether the state is that of last_saved_ or a later step; not between pruning and the end of
  /// the epoch.
  bool savable_ = false;
  int stop_signal_ = 0;  ///< as look_for_stop() saw it
  bool out_of_time_ = false;
  std::string last_saved_;  ///< "epoch 3, step 120", for messages
};

}  // namespace remcaps
