#include "remcaps/evaluation/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/ops/batch.h"
#include "tests/ops/kernel_testing.h"
#include "tests/recipe/tiny_network.h"

namespace remcaps {
namespace {

using testing::tiny_images;
using testing::tiny_recipe;

struct Evaluated {
  Recipe recipe = tiny_recipe();
  ModelContext context{.input = {1, 6, 6}, .classes = 3, .mean = {0.3}, .std = {0.2}};
  std::shared_ptr<CapsNet> model = build_model(recipe, context);
  Dataset data = tiny_images(50, 0);
  BatchSource source{data, recipe.dataset.augment, torch::kCPU};
};

TEST(Evaluate, LossIsTheMeanOverImagesAndBatchMeanLossTheMeanOverBatches) {
  Evaluated f;
  EvaluateOptions options;
  options.batch = 32;  // batches of 32 and 18
  const Evaluation result = evaluate(*f.model, f.source, options);
  torch::NoGradGuard no_grad;
  const Batch all = f.source.evaluation_batch(0, 50);
  const Tensor losses = margin_losses(f.model->forward(all.images).activations, all.labels);
  EXPECT_EQ(result.samples, 50);
  EXPECT_NEAR(result.loss, losses.mean().item<double>(), 1e-6);
  const double first = losses.slice(0, 0, 32).mean().item<double>();
  const double second = losses.slice(0, 32).mean().item<double>();
  EXPECT_NEAR(result.batch_mean_loss, (first + second) / 2, 1e-6);
  EXPECT_GT(std::abs(result.loss - result.batch_mean_loss), 1e-7);
  EXPECT_NEAR(evaluate_margin_loss(*f.model, f.source, options), result.loss, 1e-12);
}

TEST(Evaluate, ConfusionMatrixHasTrueClassesInRows) {
  Evaluated f;
  const Evaluation result = evaluate(*f.model, f.source, {});
  EXPECT_EQ(result.confusion.sum().item<int64_t>(), 50);
  for (int64_t k = 0; k < 3; ++k)
    EXPECT_EQ(result.confusion[k].sum().item<int64_t>(),
              (f.data.labels == k).sum().item<int64_t>());
  EXPECT_DOUBLE_EQ(result.accuracy, result.confusion.diagonal().sum().item<double>() / 50);
}

TEST(Evaluate, FusedSumsAreThePlainOnes) {
  for (const std::string& device : kernel_devices()) {
    SCOPED_TRACE(device);
    Evaluated f;
    f.model->to(torch::Device(device));
    const BatchSource source(tiny_images(700, 0), f.recipe.dataset.augment, torch::Device(device));
    EvaluateOptions options;
    options.batch = 512;  // the last one has 188
    const Evaluation fused = evaluate(*f.model, source, options);
    options.kernels = KernelPath::kReference;
    const Evaluation plain = evaluate(*f.model, source, options);
    EXPECT_TRUE(torch::equal(fused.confusion, plain.confusion));
    EXPECT_NEAR(fused.loss, plain.loss, 1e-5 * plain.loss);
    EXPECT_NEAR(fused.batch_mean_loss, plain.batch_mean_loss, 1e-5 * plain.batch_mean_loss);
  }
}

#ifdef REMCAPS_CUDA
TEST(EvaluateCuda, FusedSumsAnswerAsArgmaxDoes) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kBatch = 300, kClasses = 5;
  const torch::Device device("cuda");
  // Few different numbers: most rows have equal ones, some have one that is none.
  Tensor activations =
      torch::randint(0, 4, {kBatch, kClasses}, torch::TensorOptions(device).dtype(torch::kFloat32));
  activations.masked_fill_(torch::rand_like(activations) < 0.05, std::nan(""));
  const Tensor labels =
      torch::arange(kBatch, torch::TensorOptions(device).dtype(torch::kInt64)) % kClasses;
  const Tensor loss = torch::full({}, 0.75F, activations.options());
  const Tensor batch_loss = torch::zeros({}, activations.options());
  const Tensor found = torch::ones({kClasses * kClasses}, labels.options());
  ASSERT_TRUE(has_fused_sums(loss, activations));
  add_to_fused_evaluation(loss, activations, labels, batch_loss, found);
  const Tensor cell = labels * kClasses + activations.argmax(1);
  const Tensor expected = torch::ones_like(found).scatter_add_(0, cell, torch::ones_like(cell));
  EXPECT_TRUE(torch::equal(found, expected));
  EXPECT_EQ(batch_loss.item<float>(), 0.75F);
}
#endif

TEST(Evaluate, CallbackSeesEveryImageOnceInOrderAndTheModeIsRestored) {
  Evaluated f;
  f.model->train();
  std::vector<int64_t> seen;
  EvaluateOptions options;
  options.batch = 16;
  options.on_batch = [&](const Batch& batch, const Forward& forward) {
    EXPECT_FALSE(forward.poses.requires_grad());
    for (int64_t i = 0; i < batch.indices.size(0); ++i)
      seen.push_back(batch.indices[i].item<int64_t>());
  };
  evaluate(*f.model, f.source, options);
  ASSERT_EQ(seen.size(), 50);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_TRUE(f.model->is_training());
}

}  // namespace
}  // namespace remcaps
