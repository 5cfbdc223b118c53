// REM at work on real images: Eff-CapsNet on a part of Fashion-MNIST.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "remcaps/pruning/scope.h"
#include "remcaps/runs/metrics.h"
#include "remcaps/training/launch.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using testing::TemporaryFolder;

class FashionMnistRem : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
      GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
    // lambda is raised so that a few dozen steps show what takes the published one many epochs.
    recipe_ = load_recipe(
        REMCAPS_SOURCE_RECIPES "/fashion-mnist/eff-capsnet-rem.yaml",
        {"dataset.limit_train=256", "dataset.validation=64", "dataset.limit_test=64",
         "train.batch=16", "train.epochs=3", "metrics.every=2", "pruning.lambda=0.005"});
    data_ = load_dataset(recipe_.dataset, data_root(""));
  }

  std::unique_ptr<Trainer> start(const Recipe& recipe, const std::string& name) const {
    return start_run(recipe, data_, folder_ / name, data_root(""), torch::kCPU);
  }

  static Tensor zeros_of(const TensorMap& weights, const CapsNet& model) {
    std::vector<Tensor> zeros;
    for (const NamedTensor& weight : prunable_weights(model, {}))
      zeros.push_back(weights.at(weight.name).eq(0).flatten());
    return torch::cat(zeros);
  }

  TemporaryFolder folder_;
  Recipe recipe_;
  DataSplits data_;
};

TEST_F(FashionMnistRem, SparsityGrowsWithinTheLossBoundOfEverySearch) {
  const auto trainer = start(recipe_, "run");
  const RunSummary summary = trainer->run();
  const nlohmann::json metrics = read_metrics(trainer->folder().metrics());
  const auto sparsity = metrics.at("sparsity").get<std::vector<double>>();
  ASSERT_EQ(sparsity.size(), 3u);
  for (size_t epoch = 0; epoch < sparsity.size(); ++epoch) {
    SCOPED_TRACE(epoch);
    EXPECT_LE(metrics.at("loss_after_pruning").at(epoch).get<double>(),
              metrics.at("loss_before_pruning").at(epoch).get<double>());
    EXPECT_GT(metrics.at("evaluations").at(epoch).get<double>(), 1);
    if (epoch > 0) {
      EXPECT_GE(sparsity[epoch], sparsity[epoch - 1]);
    }
    for (const char* column : {"entropy", "accuracy_quantized", "keys"})
      EXPECT_EQ(metrics.at(column).at(epoch).is_null(), epoch % 2 == 0)
          << column << ": measured every second epoch";
  }
  EXPECT_GT(sparsity.back(), sparsity.front());
  EXPECT_GT(summary.sparsity, 0.05);
  ASSERT_TRUE(summary.test.trees.has_value());
  EXPECT_GT(summary.test.plain.accuracy, 0.2) << "pruning must not stop the training";
  EXPECT_EQ(summary.checkpoint, "last");

  // Nothing but weights was set to zero.
  for (const auto& parameter : trainer->model().named_parameters()) {
    if (parameter.key().find("weight") != std::string::npos) continue;
    const bool starts_at_zero = parameter.key().find("prior") != std::string::npos;
    EXPECT_TRUE(starts_at_zero || parameter.value().eq(0).sum().item<int64_t>() <= 1)
        << parameter.key();
  }
}

TEST_F(FashionMnistRem, MasksPersistThroughResume) {
  Recipe shorter = recipe_;
  shorter.train.epochs = 1;
  const auto trainer = start(shorter, "run");
  trainer->run();
  const TensorMap before = SafetensorsFile(trainer->folder().last()).load_all();
  const Tensor pruned = zeros_of(before, trainer->model());
  ASSERT_GT(pruned.sum().item<int64_t>(), 0);

  Recipe longer = recipe_;
  longer.train.epochs = 2;
  Trainer resumed(longer, data_, trainer->folder(), torch::kCPU);
  resumed.run();
  const TensorMap after = SafetensorsFile(trainer->folder().last()).load_all();
  const Tensor zeros = zeros_of(after, resumed.model());
  EXPECT_TRUE(torch::equal(zeros.logical_and(pruned), pruned)) << "a pruned weight came back";
  EXPECT_FALSE(torch::equal(after.at("class.weight"), before.at("class.weight")));
}

}  // namespace
}  // namespace remcaps
