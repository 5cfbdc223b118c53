#include "remcaps/report/reproduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/files.h"
#include "tests/report/finished_runs.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlanTest : public FinishedRuns {};

TEST_F(PlanTest, TellsFinishedInterruptedAndMissingRunsApart) {
  add_run("mnist/dr-capsnet", 42, 0.9, 0.9, {1}, 0, 10);
  const auto interrupted = folder_.path() / "mnist/dr-capsnet-rem/seed-42";
  make_folder(interrupted);
  write_atomically(interrupted / "state.safetensors", std::string_view("x"));
  ReproduceOptions options;
  options.runs = folder_.path();
  options.seeds = {42, 43};
  const auto plan = plan_runs({reproduction("levels")}, options);
  std::vector<PlannedRun::State> states;
  for (const PlannedRun& run : plan) states.push_back(run.state);
  using State = PlannedRun::State;
  EXPECT_THAT(states,
              ElementsAre(State::kFinished, State::kMissing, State::kInterrupted, State::kMissing));
}

TEST_F(PlanTest, FindsARunBesideAFolderThatDiedBeforeItsFirstCheckpoint) {
  const auto dead = folder_.path() / "mnist/dr-capsnet/seed-42";
  make_folder(dead);
  write_atomically(dead / "recipe.yaml", std::string_view("x"));
  ReproduceOptions options;
  options.runs = folder_.path();
  const auto planned = [&] { return plan_runs({reproduction("levels")}, options).front(); };
  using State = PlannedRun::State;
  EXPECT_EQ(planned().state, State::kMissing);
  const auto second = folder_.path() / "mnist/dr-capsnet/seed-42-2";
  make_folder(second);
  write_atomically(second / "state.safetensors", std::string_view("x"));
  EXPECT_EQ(planned().state, State::kInterrupted);
  EXPECT_EQ(planned().folder, second);
  add_run("mnist/dr-capsnet", 42, 0.9, 0.9, {1}, 0, 10, {1}, 10, "-3");
  EXPECT_EQ(planned().state, State::kFinished);
  EXPECT_EQ(planned().folder, folder_.path() / "mnist/dr-capsnet/seed-42-3");
}

TEST_F(PlanTest, HasTheRunThatOthersStartFromUnlessWeightsAreGiven) {
  ReproduceOptions options;
  options.runs = folder_.path();
  const auto planned = [&] {
    std::vector<std::string> recipes;
    for (const PlannedRun& run : plan_runs({reproduction("tiny-imagenet")}, options))
      recipes.push_back(run.recipe);
    return recipes;
  };
  EXPECT_THAT(planned(), ElementsAre("tiny-imagenet/resnet18", "tiny-imagenet/resnet18-capsnet",
                                     "tiny-imagenet/resnet18-capsnet-rem"));
  const PlannedRun last = plan_runs({reproduction("tiny-imagenet")}, options).back();
  EXPECT_EQ(base_of(last)->recipe, "tiny-imagenet/resnet18");
  EXPECT_THAT(overrides_of(last, options),
              ElementsAre("train.start_from=" +
                          (folder_.path() / "tiny-imagenet/resnet18/seed-42").string()));
  options.overrides = {"model.backbone_weights=resnet18.safetensors"};
  EXPECT_THAT(planned(),
              ElementsAre("tiny-imagenet/resnet18-capsnet", "tiny-imagenet/resnet18-capsnet-rem"));
  const PlannedRun without = plan_runs({reproduction("tiny-imagenet")}, options).back();
  EXPECT_FALSE(base_of(without));
  EXPECT_EQ(overrides_of(without, options), options.overrides);
}

TEST_F(PlanTest, GoesOnWithARunThatATimeLimitEnded) {
  const auto folder = folder_.path() / "mnist/dr-capsnet/seed-42";
  make_folder(folder);
  const auto state_where_stopped_by = [&](const std::string& reason) {
    const json summary = {{"recipe", "mnist/dr-capsnet"}, {"seed", 42}, {"stopped", reason}};
    write_atomically(folder / "summary.json", summary.dump());
    ReproduceOptions options;
    options.runs = folder_.path();
    return plan_runs({reproduction("levels")}, options).front().state;
  };
  using State = PlannedRun::State;
  EXPECT_EQ(state_where_stopped_by("minutes"), State::kFinished);  // nothing left to go on from
  write_atomically(folder / "state.safetensors", std::string_view("x"));
  EXPECT_EQ(state_where_stopped_by("minutes"), State::kInterrupted);
  EXPECT_EQ(state_where_stopped_by("patience"), State::kFinished);
}

// A run of mnist/dr-capsnet with the recipe that these changes make.
class PlannedRuns : public FinishedRuns {
 protected:
  void SetUp() override { options_.runs = folder_.path(); }

  void write_run(const std::vector<std::string>& changes, const json& ending, bool resumable) {
    fs::remove_all(run_);
    make_folder(run_);
    write_atomically(run_ / "recipe.yaml", load_recipe("mnist/dr-capsnet", changes).to_text());
    if (resumable) write_atomically(run_ / "state.safetensors", std::string_view("x"));
    if (ending.is_null()) return;
    json summary = {{"recipe", "mnist/dr-capsnet"}, {"seed", 42}};
    for (const std::string& change : changes)
      summary["options"][change.substr(0, change.find('='))] = change.substr(change.find('=') + 1);
    summary.update(ending);
    write_atomically(run_ / "summary.json", summary.dump());
  }

  PlannedRun planned(const std::vector<std::string>& overrides = {}) {
    options_.overrides = overrides;
    return plan_runs({reproduction("levels")}, options_).front();
  }

  void expect_passed_over(const PlannedRun& run, const std::string& reason) const {
    EXPECT_EQ(run.state, State::kMissing);
    EXPECT_EQ(run.folder, folder_.path() / "mnist/dr-capsnet/seed-42-2");
    ASSERT_EQ(run.passed_over.size(), 1u);
    EXPECT_EQ(run.passed_over[0].folder, run_);
    EXPECT_THAT(run.passed_over[0].reason, HasSubstr(reason));
    EXPECT_THAT(notes_on_passed_over(run), ElementsAre(HasSubstr("the new run goes to")));
  }

  using State = PlannedRun::State;
  const fs::path run_ = folder_.path() / "mnist/dr-capsnet/seed-42";
  ReproduceOptions options_;
};

TEST_F(PlannedRuns, OneThatALimitCutShortIsPassedOverUnlessTheLimitIsThatOfThePlan) {
  write_run({"train.epochs=2"}, {{"stopped", "epochs"}, {"epochs", 2}}, true);
  expect_passed_over(planned(), "train.epochs ended it after 2 epochs");
  expect_passed_over(planned({"train.epochs=3"}), "after 2 epochs");
  EXPECT_EQ(planned({"train.epochs=2"}).state, State::kFinished);
  EXPECT_TRUE(notes_on_passed_over(planned({"train.epochs=2"})).empty());
  write_run({}, {{"stopped", "patience"}, {"epochs", 20}}, true);
  EXPECT_EQ(planned({"train.epochs=30"}).state, State::kFinished) << "no limit has cut it";

  write_run({"train.minutes=25"}, {{"stopped", "minutes"}, {"epochs", 9}, {"seconds", 1501}}, true);
  EXPECT_EQ(planned({"train.minutes=25"}).state, State::kFinished) << "it has had its time";
  expect_passed_over(planned(), "a time limit ended it after 9 epochs");
  write_run({}, {{"stopped", "minutes"}, {"epochs", 9}, {"seconds", 1501}}, true);
  EXPECT_EQ(planned().state, State::kInterrupted) << "--budget has no limit of its own";
}

TEST_F(PlannedRuns, OneWithOtherOptionsIsPassedOverUnlessOnlyTheMachineDiffers) {
  const json converged = {{"stopped", "patience"}, {"epochs", 200}};
  write_run({"train.lr=0.5"}, converged, true);
  expect_passed_over(planned(), "train.lr=0.5");
  EXPECT_EQ(planned({"train.lr=0.5"}).state, State::kFinished);
  write_run({"model.routing.iterations=1"}, converged, true);
  expect_passed_over(planned(), "model.routing.iterations=1");  // a default of the network
  write_run({"precision=bf16", "train.seed=42", "metrics.every=1"}, converged, true);
  EXPECT_EQ(planned().state, State::kFinished);
  write_run({"train.epochs=2"}, nullptr, true);
  expect_passed_over(planned(), "train.epochs=2");
  EXPECT_EQ(planned({"train.epochs=2"}).state, State::kInterrupted);
}

}  // namespace
}  // namespace remcaps
