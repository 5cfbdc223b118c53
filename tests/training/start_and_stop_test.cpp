// Runs that build on another run, and runs that stop at an accuracy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/capsule/convolve.h"
#include "remcaps/runs/load.h"
#include "remcaps/runs/planned_run.h"
#include "remcaps/training/launch.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

/// Bright images of class 1, dark ones of class 0.
DataSplits easy_data() {
  torch::manual_seed(1);
  DataSplits data;
  data.name = "mnist";
  data.class_names = {"dark", "bright"};
  const auto make = [](int64_t count) {
    Dataset set;
    set.labels = torch::arange(count, torch::kLong) % 2;
    const Tensor noise = torch::randint(60, {count, 1, 12, 12}, torch::kLong);
    set.images = (noise + set.labels.view({-1, 1, 1, 1}) * 150).to(torch::kUInt8);
    return set;
  };
  data.train = make(64);
  data.validation = make(16);
  data.test = make(16);
  return data;
}

Recipe easy_recipe(const std::string& more) {
  const YAML::Node base = YAML::Load(
      "{dataset: {name: mnist}, train: {batch: 16, epochs: 2, lr: 0.01}, model: {name: dr-capsnet, "
      "conv_channels: 4, conv_kernel: 3, primary_types: 2, primary_kernel: 3}}");
  return parse_recipe(merge_yaml(base, YAML::Load(more)), "easy");
}

class StartAndStop : public ::testing::Test {
 protected:
  std::unique_ptr<Trainer> start(const Recipe& recipe, const std::string& name) const {
    return start_run(recipe, data_, folder_ / name, "data", torch::kCPU);
  }
  static TensorMap last_of(const Trainer& trainer) {
    return TensorFile(trainer.folder().last()).load_all();
  }
  testing::TemporaryFolder folder_;
  DataSplits data_ = easy_data();
};

TEST_F(StartAndStop, DecoderOnAFrozenEncoderLeavesTheEncoderAsItWas) {
  const auto encoder =
      start(easy_recipe("{pruning: {strategy: random, sparsity: 0.75}}"), "encoder");
  encoder->run();
  const auto recipe = easy_recipe(
      fmt::format("{{model: {{decoder: fc}}, train: {{start_from: '{}', freeze: [conv1, primary, "
                  "class]}}}}",
                  encoder->folder().path().string()));
  const auto decoder = start(recipe, "decoder");
  // Frozen convolutions run from packed weights, as in evaluation.
  int packed = 0;
  decoder->on_epoch([&] {
    for (const auto& module : decoder->model().modules()) {
      const auto* convolution = module->as<ConvolutionImpl>();
      if (convolution == nullptr) continue;
      EXPECT_TRUE(convolution->sparse() != nullptr || convolution->filters() != nullptr);
      ++packed;
    }
  });
  decoder->run();
  EXPECT_EQ(packed, 2 * 2);  // two convolutions, two epochs
  const TensorMap before = last_of(*encoder), after = last_of(*decoder);
  EXPECT_GT(after.size(), before.size());
  for (const auto& [name, tensor] : before)
    EXPECT_TRUE(torch::equal(tensor, after.at(name))) << name;
  // A resumed run stays frozen too.
  Recipe longer = recipe;
  longer.train.epochs = 3;
  Trainer(longer, data_, decoder->folder(), torch::kCPU).run();
  for (const auto& [name, tensor] : before)
    EXPECT_TRUE(torch::equal(tensor, last_of(*decoder).at(name))) << name;
}

TEST_F(StartAndStop, LobsterThatStartsFromAPrunedNetworkKeepsItsZeros) {
  const auto pruned = start(easy_recipe("{pruning: {strategy: random, sparsity: 0.5}}"), "pruned");
  pruned->run();
  const auto more = start(easy_recipe(fmt::format("{{pruning: {{strategy: lobster, begin: 1000}}, "
                                                  "train: {{start_from: '{}'}}}}",
                                                  pruned->folder().path().string())),
                          "more");
  more->run();
  const TensorMap before = last_of(*pruned), after = last_of(*more);
  for (const char* name : {"conv1.weight", "primary.conv.weight", "class.weight"}) {
    const Tensor dead = before.at(name).eq(0);
    EXPECT_GT(dead.sum().item<int64_t>(), 0) << name;
    EXPECT_TRUE(torch::equal(dead, after.at(name).eq(0))) << name;
    EXPECT_FALSE(torch::equal(before.at(name), after.at(name))) << name;
  }
}

TEST_F(StartAndStop, FreezePatternThatMatchesNothingIsAnError) {
  EXPECT_THROW(start(easy_recipe("{train: {freeze: [conv9]}}"), "a"), UsageError);
}

TEST_F(StartAndStop, StopsAtAnAccuracyAndEvaluatesTheNetworkAsItIsThen) {
  const RunSummary summary =
      start(easy_recipe("{train: {epochs: 50, stop_accuracy: 0.9}}"), "a")->run();
  EXPECT_EQ(summary.stopped, "accuracy");
  EXPECT_LT(summary.epochs, 50);
  EXPECT_EQ(summary.checkpoint, "last");
  EXPECT_EQ(load_run(summary.folder, torch::kCPU).epoch, summary.epochs - 1);
}

TEST_F(StartAndStop, AFinishedRunThatGoesOnIsNotFinishedUntilItEndsAgain) {
  Recipe recipe = easy_recipe("{train: {epochs: 1}}");
  const RunFolder folder = start(recipe, "a")->folder();
  Trainer(recipe, data_, folder, torch::kCPU).run();
  EXPECT_EQ(state_of_run(folder.path()), PlannedRun::State::kFinished);
  recipe.train.epochs = 3;
  Trainer trainer(recipe, data_, folder, torch::kCPU);
  trainer.on_epoch([] { fail("enough"); });
  EXPECT_THROW(trainer.run(), Error);
  EXPECT_EQ(state_of_run(folder.path()), PlannedRun::State::kInterrupted);
}

TEST_F(StartAndStop, CrossEntropyNeedsProbabilities) {
  EXPECT_THROW(start(easy_recipe("{loss: {kind: cross-entropy}}"), "a"), UsageError);
}

TEST_F(StartAndStop, AFolderWhoseNameIsNotUtf8IsTrainedIn) {
  const auto trainer = start_run(easy_recipe("{train: {epochs: 1}}"), data_, folder_ / "caf\xe9",
                                 "data\xe9", torch::kCPU);
  const RunSummary summary = trainer->run();
  EXPECT_EQ(nlohmann::json::parse(read_file(trainer->folder().summary())).at("run"),
            (folder_ / "caf\ufffd/seed-42").string());
  EXPECT_EQ(load_run(summary.folder, torch::kCPU).epoch, 0);
}

TEST_F(StartAndStop, LevelsThatDoNotFitTheNetworkAreAnErrorBeforeTraining) {
  EXPECT_THROW(start(easy_recipe("{quantize: {levels: [11, 6, 6]}}"), "a"), Error);
}

}  // namespace
}  // namespace remcaps
