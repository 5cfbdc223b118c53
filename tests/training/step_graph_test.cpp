// The recorded step and the recorded pass against the plain ones. On a CPU a recording is the work
// itself: what lies on the device there (counter, order, Adam's numbers) is tested all the same.
#include "remcaps/training/step_graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/pruning/threshold_search.h"
#include "remcaps/training/launch.h"
#include "tests/ops/kernel_testing.h"
#include "tests/recipe/tiny_network.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using testing::TemporaryFolder;
using testing::tiny_data;
using testing::tiny_images;
using testing::tiny_recipe;

constexpr int64_t kImages = 118, kSteps = 8;  // in batches of 16: the last one has 6

// A network in training, with or without a graph, step by step.
class Training {
 public:
  Training(torch::Device device, bool with_graph, const std::string& more = "")
      : stream_(device),
        device_(device),
        recipe_(tiny_recipe(more)),
        model_(build_model(recipe_, {.input = {1, 6, 6}, .classes = 3})),
        source_(tiny_images(kImages, 0), recipe_.dataset.augment, device) {
    model_->to(device);
    step_ = std::make_unique<TrainingStep>(recipe_, *model_, device);
    if (with_graph) graph_ = std::make_unique<StepGraph>(recipe_, *step_, source_, device);
    model_->train();
    begin_epoch(0);
  }

  void begin_epoch(int64_t epoch) {
    epoch_ = epoch;
    sums_ = EpochSums::zeros(device_);
    PruningContext context = pruning();
    step_->pruner().before_epoch(context);
  }
  // Steps [first, end) of the epoch.
  void run(int64_t first, int64_t end) {
    for (int64_t position = first; position < end; ++position) {
      PruningContext context = pruning();
      if (graph_ && graph_->run(position, context, sums_)) {
        ++recorded_steps_;
        continue;
      }
      const Batch batch = source_.training_batch(position, recipe_.train.batch,
                                                 static_cast<uint64_t>(recipe_.train.seed),
                                                 static_cast<uint64_t>(epoch_));
      EXPECT_TRUE(step_->run(batch, position, context, sums_));
    }
  }
  // What a checkpoint within an epoch carries over.
  void continue_from(const Training& other) {
    epoch_ = other.epoch_;
    load_weights(*model_, weights_of(*other.model_), "test");
    step_->adam().load_state(other.step_->adam().state(), other.step_->adam().steps());
    step_->pruner().load_state(other.step_->pruner().state());
    sums_.loss.copy_(other.sums_.loss);
    sums_.correct.copy_(other.sums_.correct);
    sums_.images = other.sums_.images;
  }

  CapsNet& model() { return *model_; }
  Adam& adam() { return step_->adam(); }
  EpochSums& sums() { return sums_; }
  int64_t recorded_steps() const { return recorded_steps_; }
  bool replays() const { return graph_ && graph_->replays(); }

 private:
  PruningContext pruning() { return {.model = *model_, .epoch = epoch_}; }

  OwnStream stream_;
  torch::Device device_;
  Recipe recipe_;
  std::shared_ptr<CapsNet> model_;
  BatchSource source_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<StepGraph> graph_;
  EpochSums sums_;
  int64_t epoch_ = 0, recorded_steps_ = 0;
};

void expect_same(Training& found, Training& expected) {
  EXPECT_EQ(found.sums().images, expected.sums().images);
  EXPECT_EQ(found.sums().correct.item<int64_t>(), expected.sums().correct.item<int64_t>());
  EXPECT_TRUE(close_to(found.sums().loss, expected.sums().loss, 1e-6));
  EXPECT_EQ(found.adam().steps(), expected.adam().steps());
  const TensorMap weights = weights_of(expected.model());
  for (const auto& [name, tensor] : weights_of(found.model()))
    EXPECT_TRUE(close_to(tensor, weights.at(name), 1e-5)) << name;
  const TensorMap moments = expected.adam().state();
  for (const auto& [name, tensor] : found.adam().state())
    EXPECT_TRUE(close_to(tensor, moments.at(name), 1e-5)) << name;
}

class StepGraphTest : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }
};

TEST_P(StepGraphTest, TrainsAsTheStepsOneByOneDo) {
  for (const char* more :
       {"", "{pruning: {strategy: lobster, lambda: 0.01}, train: {lr_decay: 0.5}}",
        "{loss: {switch_epoch: 1}}",
        "{model: {name: dr-capsnet, conv_channels: 6, conv_kernel: 3, primary_types: 4, "
        "primary_kernel: 3, primary_stride: 1}, train: {lr: 0.001}, pruning: {strategy: lobster, "
        "lambda: 0.01, groups: [capsule, type, place, filter, channel]}}"}) {
    SCOPED_TRACE(more);
    Training plain(device(), /*with_graph=*/false, more), graph(device(), true, more);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      SCOPED_TRACE(epoch);
      for (Training* each : {&plain, &graph}) {
        each->begin_epoch(epoch);
        each->run(0, kSteps);
      }
      expect_same(graph, plain);
    }
    EXPECT_EQ(graph.recorded_steps(), 3 * (kSteps - 1));
    EXPECT_TRUE(graph.replays());
  }
}

TEST_P(StepGraphTest, GoesOnWithinAnEpochWhereAnotherRunWasLeft) {
  for (const int64_t left : {1, 4, 7}) {
    SCOPED_TRACE(left);
    Training whole(device(), true), part(device(), true), rest(device(), true);
    whole.run(0, kSteps);
    part.run(0, left);
    rest.continue_from(part);
    rest.run(left, kSteps);
    expect_same(rest, whole);
  }
}

TEST_P(StepGraphTest, PrunedWeightsStayZero) {
  Training training(device(), true, "{pruning: {strategy: lobster, lambda: 0.01}}");
  Tensor weight = training.model().named_parameters()["class.weight"];
  {
    const torch::NoGradGuard no_grad;
    weight.slice(1, 0, 18).zero_();
  }
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    training.begin_epoch(epoch);
    training.run(0, kSteps);
    EXPECT_EQ(weight.slice(1, 0, 18).abs().max().item<float>(), 0);
    EXPECT_GT(weight.slice(1, 18, 36).abs().min().item<float>(), 0);
  }
}

TEST_P(StepGraphTest, RemembersTheFirstStepWhoseLossIsNotFinite) {
  Training training(device(), true);
  training.run(0, 5);
  EXPECT_EQ(training.sums().bad_step.item<int64_t>(), EpochSums::kNoBadStep);
  {
    const torch::NoGradGuard no_grad;
    training.model().named_parameters()["class.bias"].fill_(std::nan(""));
  }
  training.run(5, 7);
  EXPECT_EQ(training.sums().bad_step.item<int64_t>(), 5);
}

struct RepeatedPasses {
  explicit RepeatedPasses(torch::Device device)
      : stream(device), source(tiny_images(50, 0), recipe.dataset.augment, device) {
    model->to(device);
    options.batch = 16;  // the last one has 2
  }
  OwnStream stream;
  Recipe recipe = tiny_recipe();
  std::shared_ptr<CapsNet> model = build_model(recipe, {.input = {1, 6, 6}, .classes = 3});
  BatchSource source;
  EvaluateOptions options;
};

TEST_P(StepGraphTest, RecordedPassSeesTheWeightsAsTheyAre) {
  RepeatedPasses f(device());
  EvaluationPass pass(*f.model, f.source, f.options, /*record=*/true);
  for (int repeat = 0; repeat < 4; ++repeat) {
    SCOPED_TRACE(repeat);
    const Evaluation expected = evaluate(*f.model, f.source, f.options);
    const Evaluation found = pass.run();
    EXPECT_DOUBLE_EQ(found.loss, expected.loss);
    EXPECT_DOUBLE_EQ(found.batch_mean_loss, expected.batch_mean_loss);
    EXPECT_TRUE(torch::equal(found.confusion, expected.confusion));
    EXPECT_DOUBLE_EQ(pass.loss(), expected.loss);
    const torch::NoGradGuard no_grad;
    f.model->named_parameters()["class.weight"].mul_(-0.7);
  }
}

// Convolutions and routing with workspaces of their own, on two streams on a GPU.
TEST_P(StepGraphTest, RecordedPassOfACapsuleNetworkIsItsEvaluation) {
  constexpr int64_t kCount = 40;
  const OwnStream stream(device());
  Recipe recipe = tiny_recipe("{model: {name: dr-capsnet}}");
  const auto model = build_model(recipe, {.input = {1, 20, 20}, .classes = 10});
  model->to(device());
  Dataset data;
  data.images = torch::randint(0, 256, {kCount, 1, 20, 20}, torch::kUInt8);
  data.labels = torch::arange(kCount) % 10;
  const BatchSource source(data, recipe.dataset.augment, device());
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16);
    EvaluateOptions options;
    options.batch = 16;  // the last one has 8
    options.bf16 = bf16;
    EvaluationPass pass(*model, source, options, /*record=*/true);
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Evaluation expected = evaluate(*model, source, options);
      const Evaluation found = pass.run();
      EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
      EXPECT_NEAR(found.batch_mean_loss, expected.batch_mean_loss, 1e-6 * expected.loss);
      // Hardly trained, a network has near ties.
      EXPECT_LE((found.confusion - expected.confusion).abs().sum().item<int64_t>(), 4);
      EXPECT_EQ(found.confusion.sum().item<int64_t>(), kCount);
      const torch::NoGradGuard no_grad;
      for (Tensor& parameter : model->parameters()) parameter.mul_(1.05);
    }
  }
}

TEST_P(StepGraphTest, RecordedStreamsSeeWhatWasDoneBeforeAndAreSeenAfter) {
  constexpr int64_t kPieces = 7, kStreams = 3, kSide = 256;
  const OwnStream stream(device());
  const auto options = torch::TensorOptions().device(device()).dtype(torch::kFloat32);
  Tensor input = torch::zeros({}, options);
  Tensor pieces = torch::zeros({kPieces}, options), total = torch::zeros({}, options);
  const auto work = [&] {
    const Tensor doubled = input * 2;
    ParallelStreams streams(device(), kStreams);
    for (int64_t piece = 0; piece < kPieces; ++piece)
      streams.on(piece % kStreams, [&] {
        // Enough products that the streams overlap, each with its own memory.
        const Tensor mean = torch::full({kSide, kSide}, 1.0 / kSide, options);
        Tensor matrix = (doubled + static_cast<double>(piece)).expand({kSide, kSide}).contiguous();
        for (int repeat = 0; repeat < 8; ++repeat) matrix = torch::mm(matrix, mean);
        pieces[piece].copy_(matrix[kSide - 1][0]);
      });
    streams.join();
    total.copy_(pieces.sum());
  };
  work();
  DeviceGraph graph(device());
  graph.record(work);
  for (const int64_t value : {1, 5, 20}) {
    input.fill_(value);
    graph.replay();
    EXPECT_EQ(total.item<float>(), static_cast<float>(kPieces * 2 * value + 21));
  }
}

TEST_P(StepGraphTest, StreamThatFailsLeavesNothingRecordedAndTheDeviceUsable) {
  const OwnStream stream(device());
  Tensor sum = torch::zeros({}, torch::TensorOptions().device(device()));
  bool fails = false;
  const auto work = [&] {
    ParallelStreams streams(device(), 2);
    streams.on(1, [&] {
      sum += 1;
      check(!fails, "as it should");
    });
    streams.join();
  };
  work();
  DeviceGraph graph(device());
  if (has_device_graphs(device())) {
    fails = true;
    EXPECT_THROW(graph.record(work), Error);
    EXPECT_FALSE(graph.recorded());
    fails = false;
  }
  graph.record(work);
  graph.replay();
  graph.replay();
  EXPECT_EQ(sum.item<float>(), 3);
}

TEST_P(StepGraphTest, SearchWithRecordedPassesFindsThePlainSearchsThreshold) {
  std::vector<SearchResult> results;
  std::vector<Tensor> weights;
  for (const bool record : {false, true}) {
    RepeatedPasses f(device());
    EvaluationPass pass(*f.model, f.source, f.options, record);
    const auto loss = [&] {
      return record ? pass.loss() : evaluate_margin_loss(*f.model, f.source, f.options);
    };
    // Without reuse every threshold is evaluated: the plainest search there is.
    results.push_back(search_threshold(prunable_weights(*f.model, {}), magnitude_range(*f.model),
                                       loss, {.tolerance = 0.02, .reuse = record}));
    weights.push_back(f.model->named_parameters()["class.weight"].detach().cpu());
  }
  EXPECT_GT(results[0].threshold, 0);
  EXPECT_EQ(results[0].threshold, results[1].threshold);
  EXPECT_EQ(results[0].loss, results[1].loss);
  EXPECT_LT(results[1].evaluations, results[0].evaluations);
  EXPECT_TRUE(torch::equal(weights[0], weights[1]));
}

INSTANTIATE_TEST_SUITE_P(Devices, StepGraphTest, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

#ifdef REMCAPS_CUDA
TEST(StepGraphCuda, RunWithAGraphEndsWhereARunWithoutEnds) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const TemporaryFolder folder;
  std::map<bool, TensorMap> weights;
  for (const bool graph : {false, true}) {
    const auto trainer = start_run(
        tiny_recipe(fmt::format("{{train: {{epochs: 4, checkpoint_steps: 2}}, pruning: {{strategy: "
                                "random, sparsity: 0.5}}, cuda_graph: {}}}",
                                graph)),
        tiny_data(), folder / (graph ? "graph" : "plain"), "data", torch::Device("cuda"));
    trainer->run();
    weights[graph] = TensorFile(trainer->folder().last()).load_all();
  }
  for (const auto& [name, plain] : weights[false]) {
    EXPECT_TRUE(close_to(weights[true].at(name), plain, 1e-4)) << name;
    EXPECT_TRUE(torch::equal(weights[true].at(name) == 0, plain == 0)) << name;
  }
}
#endif

}  // namespace
}  // namespace remcaps
