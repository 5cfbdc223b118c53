#include "remcaps/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/pruning/capsules.h"
#include "remcaps/pruning/lobster_pruner.h"
#include "remcaps/runs/load.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/launch.h"
#include "tests/recipe/tiny_network.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::tiny_data;
using testing::tiny_recipe;

// A strategy that notes its moments and does what a test asks of it at a step.
struct Probe {
  std::vector<std::string> moments;
  std::function<void(const PrunableNetwork&, int64_t step)> at_step;
  int64_t step = 0;
};
Probe* probe = nullptr;

class ProbePruner : public Pruner {
 public:
  void at_initialisation(PruningContext&) override { note("init"); }
  void before_epoch(PruningContext&) override { note("epoch"); }
  void after_backward(PruningContext&) override { note("backward"); }
  void after_step(PruningContext& context) override {
    note("step");
    if (probe != nullptr && probe->at_step) probe->at_step(context.model, probe->step++);
  }
  PruningReport after_epoch(PruningContext&) override {
    note("end");
    return {};
  }

 private:
  static void note(const char* moment) {
    if (probe != nullptr) probe->moments.emplace_back(moment);
  }
};

// LOBSTER, in whose second search a signal comes.
class InterruptedLobster : public LobsterPruner {
 public:
  InterruptedLobster() : LobsterPruner({.lambda = 0.01, .patience_epochs = 0, .tolerance = 0.5}) {}

  PruningReport after_epoch(PruningContext& context) override {
    const auto loss = context.validation_loss;
    int64_t calls = 0;
    context.validation_loss = [&] {
      if (signal_in_search && context.epoch == 1 && ++calls == 2) {
        signal_in_search = false;
        raise(SIGINT);
      }
      return loss();
    };
    return LobsterPruner::after_epoch(context);
  }

  static inline bool signal_in_search = false;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    register_pruner("probe", [](ConfigSection&) { return std::make_unique<ProbePruner>(); });
    register_pruner("interrupted",
                    [](ConfigSection&) { return std::make_unique<InterruptedLobster>(); });
    probe = &probe_;
  }
  ~TrainerTest() override { probe = nullptr; }

  std::unique_ptr<Trainer> start(const Recipe& recipe, const std::string& name) {
    return start_run(recipe, tiny_data(), folder_ / name, "data", torch::kCPU);
  }
  static std::unique_ptr<Trainer> again(const RunFolder& folder) {
    return std::make_unique<Trainer>(read_run_recipe(folder), tiny_data(), folder, torch::kCPU);
  }
  static std::string error_of(Trainer& trainer) {
    try {
      trainer.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  // Half a run, then the rest from its folder, ends in the same bytes as a whole one.
  void expect_pruned_run_resumes(const std::string& kernels);

  TemporaryFolder folder_;
  Probe probe_;
};

constexpr const char* kProbed = "{pruning: {strategy: probe}}";

TEST_F(TrainerTest, LearnsAndLeavesACompleteRunFolder) {
  const auto trainer = start(tiny_recipe("{train: {epochs: 30}}"), "a");
  const RunSummary summary = trainer->run();
  EXPECT_GT(summary.test.plain.accuracy, 0.8);
  EXPECT_EQ(summary.stopped, "epochs");
  EXPECT_EQ(summary.epochs, 30);
  EXPECT_EQ(summary.steps, 30 * 5);  // 70 images in batches of 16: the last one has 6
  const RunFolder& run = trainer->folder();
  EXPECT_EQ(run.path(), folder_ / "a" / "seed-42");
  for (const auto& file : {run.recipe(), run.info(), run.metrics(), run.best(), run.last(),
                           run.state(), run.summary()})
    EXPECT_TRUE(fs::exists(file)) << file;
  for (const auto& entry : fs::directory_iterator(run.path()))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

TEST_F(TrainerTest, MomentsComeInThePublishedOrder) {
  start(tiny_recipe("{train: {epochs: 2, batch: 64}, pruning: {strategy: probe}}"), "a")->run();
  EXPECT_THAT(probe_.moments,
              ElementsAre("init", "epoch", "backward", "step", "backward", "step", "end",  //
                          "epoch", "backward", "step", "backward", "step", "end"));
}

TEST_F(TrainerTest, StopsWhenValidationLossHasNotImprovedForPatienceEpochs) {
  // With a learning rate of 0 the loss of epoch 0 is never beaten.
  const RunSummary summary =
      start(tiny_recipe("{train: {epochs: 0, lr: 0, patience: 4}}"), "a")->run();
  EXPECT_EQ(summary.stopped, "patience");
  EXPECT_EQ(summary.checkpoint_epoch, 0);
  EXPECT_EQ(summary.epochs, 5);  // the last epoch is best + patience
}

TEST_F(TrainerTest, TimeLimitEndsTheEpochEarlyAndCompletely) {
  const RunSummary summary =
      start(tiny_recipe("{train: {epochs: 0, minutes: 0.00001}}"), "a")->run();
  EXPECT_EQ(summary.stopped, "minutes");
  EXPECT_EQ(summary.epochs, 1);
  EXPECT_GT(summary.test.plain.samples, 0);
}

TEST_F(TrainerTest, TimeLimitOfACallCountsFromThatCall) {
  const Recipe recipe = tiny_recipe("{train: {epochs: 0, minutes: 0.00001}}");
  const auto trainer = start(recipe, "a");
  trainer->run();
  const auto again = [&] { return Trainer(recipe, tiny_data(), trainer->folder(), torch::kCPU); };
  EXPECT_EQ(again().run().epochs, 1);      // the recipe's has long passed
  EXPECT_GT(again().run(0.02).epochs, 1);  // this one begins now
}

// A crash at every step in turn, with a checkpoint every third, ends in the same bytes.
TEST_F(TrainerTest, CrashAtAnyStepAndResumeGivesTheSameBytes) {
  const Recipe recipe = tiny_recipe(
      "{train: {epochs: 2, checkpoint_steps: 3}, pruning: {strategy: probe}, metrics: {every: 1}}");
  const auto whole = start(recipe, "whole");
  whole->run();
  for (int64_t crash = 0; crash < 10; ++crash) {
    SCOPED_TRACE(crash);
    const auto trainer = start(recipe, fmt::format("crash-{}", crash));
    probe_.step = 0;
    probe_.at_step = [crash](const PrunableNetwork&, int64_t step) {
      if (step == crash) throw std::runtime_error("crash");
    };
    EXPECT_THROW(trainer->run(), std::runtime_error);
    probe_.at_step = nullptr;
    again(trainer->folder())->run();
    for (const char* name : {"best.safetensors", "last.safetensors", "metrics.csv"})
      EXPECT_EQ(read_file(whole->folder().path() / name),
                read_file(trainer->folder().path() / name))
          << name;
  }
}

// The loss gets larger in the second epoch, because its margins change: there is no new best.
TEST_F(TrainerTest, FastEpochsAreNotSavedOneByOne) {
  for (const auto& [seconds, saved] : {std::pair{"0", 3}, {"1e6", 1}}) {
    SCOPED_TRACE(seconds);
    const Recipe recipe = tiny_recipe(
        fmt::format("{{train: {{epochs: 5, checkpoint_seconds: {}}}, pruning: {{strategy: probe}}, "
                    "loss: {{switch_epoch: 1, switched_m_minus: 0, switched_lambda: 100}}}}",
                    seconds));
    const auto whole = start(recipe, fmt::format("whole-{}", seconds));
    whole->run();
    const auto trainer = start(recipe, fmt::format("crash-{}", seconds));
    probe_.step = 0;
    probe_.at_step = [](const PrunableNetwork&, int64_t step) {
      if (step == 3 * 5 + 1) throw std::runtime_error("crash in the fourth epoch");
    };
    EXPECT_THROW(trainer->run(), std::runtime_error);
    probe_.at_step = nullptr;
    const TensorFile state(trainer->folder().state());
    EXPECT_EQ(nlohmann::json::parse(state.metadata().at("progress"))["epoch"], saved);
    again(trainer->folder())->run();
    for (const char* name : {"best.safetensors", "last.safetensors", "metrics.csv"})
      EXPECT_EQ(read_file(whole->folder().path() / name),
                read_file(trainer->folder().path() / name))
          << name;
  }
}

void TrainerTest::expect_pruned_run_resumes(const std::string& kernels) {
  const Recipe recipe = tiny_recipe(
      "{train: {epochs: 4}, pruning: {strategy: lobster, lambda: 0.01, tolerance: 0.5}, kernels: " +
      kernels + "}");
  const auto whole = start(recipe, "whole");
  const RunSummary summary = whole->run();
  EXPECT_GT(summary.sparsity, 0);
  EXPECT_EQ(summary.checkpoint, "last");
  const auto trainer = start(recipe, "part");
  Recipe shorter = recipe;
  shorter.train.epochs = 2;
  Trainer(shorter, tiny_data(), trainer->folder(), torch::kCPU).run();
  Trainer(recipe, tiny_data(), trainer->folder(), torch::kCPU).run();
  EXPECT_EQ(read_file(whole->folder().last()), read_file(trainer->folder().last()));
  EXPECT_EQ(read_file(whole->folder().metrics()), read_file(trainer->folder().metrics()));
}

TEST_F(TrainerTest, PrunedRunResumesWithItsMasks) {
  expect_pruned_run_resumes("fused");
}

TEST_F(TrainerTest, PrunedRunResumesWithItsMasksOnThePlainPath) {
  expect_pruned_run_resumes("reference");
}

// A small DR-CapsNet: 4 types of capsules on a 2 x 2 grid.
constexpr const char* kStructured =
    "{model: {name: dr-capsnet, conv_channels: 6, conv_kernel: 3, primary_types: 4, "
    "primary_dim: 3, primary_kernel: 3, primary_stride: 1}, quantize: {levels: [11]}, "
    "train: {lr: 0.003}, pruning: {strategy: lobster, lambda: 0.01, tolerance: 0.02, begin: 1, "
    "groups: [capsule, type, place, filter, channel]}}";

Recipe structured_recipe(const std::string& more) {
  return tiny_recipe(YAML::Dump(merge_yaml(YAML::Load(kStructured), YAML::Load(more))));
}

TEST_F(TrainerTest, CapsulesThatAreGoneStayGoneAlsoAfterAResume) {
  for (const char* more : {"{kernels: fused, pruning: {choose: entropy}}",
                           "{kernels: reference, pruning: {choose: parts}}"}) {
    SCOPED_TRACE(more);
    const auto recipe = [&](int64_t epochs) {
      Recipe made = structured_recipe(more);
      made.train.epochs = epochs;
      return made;
    };
    const auto whole = start(recipe(5), "whole");
    std::vector<torch::Tensor> left;  // capsules that are left after each epoch
    whole->on_epoch([&] {
      left.push_back(prunable_class_layer(whole->model()).weight.detach().flatten(1).ne(0).any(1));
    });
    whole->run();
    for (size_t epoch = 1; epoch < left.size(); ++epoch)
      EXPECT_FALSE(left[epoch].logical_and(left[epoch - 1].logical_not()).any().item<bool>());
    EXPECT_LT(left.back().sum().item<int64_t>(), 16) << "no capsule went";
    const auto part = start(recipe(3), "part");
    part->run();
    Trainer(recipe(5), tiny_data(), part->folder(), torch::kCPU).run();
    EXPECT_EQ(read_file(whole->folder().last()), read_file(part->folder().last()));
    EXPECT_EQ(read_file(whole->folder().metrics()), read_file(part->folder().metrics()));
  }
}

// The one-pass update gives the weights of a plain step between the strategy's calls, up to rounding.
// No strategy searches here: rounding could change the result of a search.
TEST_F(TrainerTest, OnePassUpdateTrainsLikeThePlainOneWithEveryStrategy) {
  for (const char* pruning :
       {"{strategy: none}", "{strategy: lobster, lambda: 0.01, begin: 1000}",
        "{strategy: random, sparsity: 0.5}", "{strategy: snip, sparsity: 0.5}"}) {
    SCOPED_TRACE(pruning);
    std::map<std::string, std::map<std::string, torch::Tensor>> weights;
    for (const char* kernels : {"fused", "reference"}) {
      const auto trainer =
          start(tiny_recipe(fmt::format("{{train: {{epochs: 3}}, pruning: {}, kernels: {}}}",
                                        pruning, kernels)),
                "a");
      trainer->run();
      weights[kernels] = TensorFile(trainer->folder().last()).load_all();
    }
    for (const auto& [name, plain] : weights["reference"]) {
      const torch::Tensor& fused = weights["fused"].at(name);
      EXPECT_TRUE(torch::allclose(fused, plain, 1e-4, 1e-5)) << name;
      EXPECT_TRUE(torch::equal(fused == 0, plain == 0)) << name;
    }
  }
}

TEST_F(TrainerTest, SignalSavesWithinTheEpochAndResumesExactly) {
  const Recipe recipe = tiny_recipe(kProbed);
  const auto whole = start(recipe, "whole");
  whole->run();
  const auto trainer = start(recipe, "part");
  probe_.step = 0;
  probe_.at_step = [](const PrunableNetwork&, int64_t step) {
    if (step == 6) raise(SIGINT);
  };
  try {
    trainer->run();
    FAIL() << "the signal was not noticed";
  } catch (const Interrupted& interrupted) {
    EXPECT_EQ(interrupted.exit_code(), 130);
    EXPECT_THAT(interrupted.what(),
                HasSubstr("remcaps resume " + trainer->folder().path().string()));
    EXPECT_THAT(interrupted.what(), HasSubstr("saved at epoch 2, step 2"));
  }
  probe_.at_step = nullptr;
  again(trainer->folder())->run();
  EXPECT_EQ(read_file(whole->folder().last()), read_file(trainer->folder().last()));
}

TEST_F(TrainerTest, SignalInASearchSavesAtTheEndOfTheEpochAndResumesExactly) {
  const Recipe recipe = tiny_recipe("{pruning: {strategy: interrupted}}");
  const auto whole = start(recipe, "whole");
  EXPECT_GT(whole->run().sparsity, 0);
  const auto trainer = start(recipe, "part");
  InterruptedLobster::signal_in_search = true;
  EXPECT_THAT(error_of(*trainer), HasSubstr("saved at epoch 2, step 5;"));
  again(trainer->folder())->run();
  for (const char* name : {"best.safetensors", "last.safetensors", "metrics.csv"})
    EXPECT_EQ(read_file(whole->folder().path() / name), read_file(trainer->folder().path() / name))
        << name;
}

TEST_F(TrainerTest, PruningOfANetworkThatHasNotLearntIsPointedOutOnce) {
  ::testing::internal::CaptureStderr();
  start(tiny_recipe("{train: {lr: 0}, pruning: {strategy: lobster}}"), "a")->run();
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("where chance is 35.00 %"));
  EXPECT_THAT(text, HasSubstr("pruning.above_chance"));
  EXPECT_EQ(text.find("warning:"), text.rfind("warning:"));
}

TEST_F(TrainerTest, LossThatIsNotFiniteNamesStepParameterAndCheckpoint) {
  const auto trainer = start(tiny_recipe(kProbed), "a");
  probe_.at_step = [](const PrunableNetwork& model, int64_t step) {
    torch::NoGradGuard no_grad;
    if (step != 6) return;
    for (const auto& [name, parameter] : model.parameters)
      if (name == "class.bias") parameter.fill_(std::nan(""));
  };
  const std::string message = error_of(*trainer);
  EXPECT_THAT(message, HasSubstr("loss is not finite at epoch 2, step 3;"));
  EXPECT_THAT(message, HasSubstr("parameter class.bias"));
  EXPECT_THAT(message, HasSubstr(trainer->folder().state().string() + " (the end of epoch 1)"));
  // The checkpoint it names is good.
  probe_.at_step = nullptr;
  EXPECT_EQ(again(trainer->folder())->run().epochs, 3);
}

TEST_F(TrainerTest, ChosenEpochsAreKeptAndTheTestSetIsMeasuredAsAsked) {
  const auto trainer =
      start(tiny_recipe("{train: {epochs: 4}, metrics: {every: 2, keep_epochs: [0, 2]}}"), "a");
  trainer->run();
  EXPECT_TRUE(fs::exists(trainer->folder().epoch(0)));
  EXPECT_FALSE(fs::exists(trainer->folder().epoch(1)));
  EXPECT_TRUE(fs::exists(trainer->folder().epoch(2)));
  const LoadedRun kept = load_run(trainer->folder().path(), torch::kCPU, "epoch-0002");
  EXPECT_EQ(kept.epoch, 2);
}

TEST_F(TrainerTest, RunFolderIsNeverReused) {
  const auto first = start(tiny_recipe(), "a");
  const auto second = start(tiny_recipe(), "a");
  EXPECT_EQ(second->folder().path().filename(), "seed-42-2");
}

TEST_F(TrainerTest, FolderInUseIsRefused) {
  const auto trainer = start(tiny_recipe(), "a");
  const RunLock held(trainer->folder());
  EXPECT_THAT(error_of(*trainer), HasSubstr("another process is training"));
}

TEST_F(TrainerTest, RunThatCannotBeBuiltLeavesNoFolder) {
  EXPECT_THROW(start(tiny_recipe("{model: {nonsense: 1}}"), "a"), UsageError);
  EXPECT_TRUE(fs::is_empty(folder_ / "a"));
}

TEST_F(TrainerTest, LoadedRunIsTheBestCheckpointOfAnUnprunedRunAndTheLastOfAPrunedOne) {
  const auto plain = start(tiny_recipe("{train: {lr: 0}}"), "plain");
  plain->run();
  EXPECT_EQ(load_run(plain->folder().path(), torch::kCPU).epoch, 0);
  const auto pruned = start(tiny_recipe("{train: {lr: 0}, pruning: {strategy: probe}}"), "pruned");
  pruned->run();
  const LoadedRun run = load_run(pruned->folder().path(), torch::kCPU);
  EXPECT_EQ(run.epoch, 2);
  EXPECT_EQ(run.class_names.size(), 3);
  EXPECT_FALSE(run.model->is_training());
}

int host_caught = 0;

TEST(Interrupts, AreGivenBackToTheProgramThatTrains) {
  const auto before = ::signal(SIGINT, [](int signal) { host_caught = signal; });
  {
    const InterruptGuard guard;
    raise(SIGINT);
    EXPECT_EQ(InterruptGuard::signal(), SIGINT);
  }
  EXPECT_THROW(stop_between_runs(), Interrupted);
  EXPECT_EQ(host_caught, 0);
  raise(SIGINT);
  EXPECT_EQ(host_caught, SIGINT);
  { const InterruptGuard guard; }
  EXPECT_NO_THROW(stop_between_runs()) << "the signal before was for another run";
  ::signal(SIGINT, before);
}

}  // namespace
}  // namespace remcaps
