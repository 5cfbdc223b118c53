// Networks without what pruning has made dead.
#include "remcaps/runtime/compact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "tests/models/make.h"
#include "tests/runtime/exported.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using testing::floats_of;
using testing::TemporaryFolder;

class CompactNetwork : public testing::SmallNetwork {
 protected:
  CompactNetwork() : SmallNetwork(/*conv_channels=*/6, /*seed=*/11) {}

  Tensor parameter(const std::string& name) const { return model_->named_parameters()[name]; }

  // Expects answers of the file and of the network to be the same.
  void expect_same_answers(const NetworkData& network) const {
    const auto path = folder_ / "compact.safetensors";
    testing::write_network(path, network);
    const runtime::Network original(file_), compact(path);
    ASSERT_EQ(compact.routing_layers()[0].children, original.routing_layers()[0].children);
    const std::vector<float> images = floats_of(torch::rand({5, 1, 20, 20}));
    const runtime::RunOptions options{.couplings = true, .quantize = true};
    const runtime::Answer expected = original.run(images, options);
    const runtime::Answer found = compact.run(images, options);
    ASSERT_EQ(found.lengths.size(), expected.lengths.size());
    for (size_t j = 0; j < found.lengths.size(); ++j)
      EXPECT_NEAR(found.lengths[j], expected.lengths[j], 1e-5);
    EXPECT_EQ(compact.level_indices(found, 0), original.level_indices(expected, 0));
    for (int64_t image = 0; image < 5; ++image)
      EXPECT_EQ(compact.tree_key(found, image, 0), original.tree_key(expected, image, 0));
    EXPECT_EQ(found.child_lengths[0].size(), expected.child_lengths[0].size());
  }
};

TEST_F(CompactNetwork, LosesConstantChannelsAndThoseThatNobodyReads) {
  const torch::NoGradGuard no_grad;
  parameter("conv1.weight")[1].zero_();
  parameter("conv1.bias")[1].fill_(0.75);  // goes into the biases of the capsules
  parameter("conv1.weight")[2].zero_();
  parameter("conv1.bias")[2].fill_(-1);  // 0 behind the ReLU
  parameter("primary.conv.weight").select(1, 4).zero_();
  const NetworkData network = compacted(exported());
  EXPECT_THAT(network.tensors.at("conv1.weight").shape, ElementsAre(3, 1, 5, 5));
  EXPECT_THAT(network.tensors.at("conv1.bias").shape, ElementsAre(3));
  EXPECT_THAT(network.tensors.at("primary.conv.weight").shape, ElementsAre(12, 3, 5, 5));
  EXPECT_NE(network.tensors.at("primary.conv.bias").values,
            exported().tensors.at("primary.conv.bias").values);
  expect_same_answers(network);
}

TEST_F(CompactNetwork, LosesTypesThatCannotVoteAndKeepsTheParseTrees) {
  const torch::NoGradGuard no_grad;
  const int64_t places = parameter("class.weight").size(0) / 3;
  parameter("class.weight").slice(0, places, 2 * places).zero_();  // type 1
  parameter("class.weight")[0].zero_();                            // one capsule of type 0
  parameter("primary.conv.weight").slice(0, 8).zero_();            // type 2
  parameter("primary.conv.bias").slice(0, 8).zero_();
  parameter("primary.conv.weight").slice(1, 5).zero_();
  const NetworkData network = compacted(exported());
  EXPECT_THAT(network.tensors.at("primary.conv.weight").shape, ElementsAre(4, 5, 5, 5));
  EXPECT_EQ(network.tensors.at("class.weight").shape[0], places);
  EXPECT_EQ(network.tensors.at("conv1.weight").shape[0], 5);
  expect_same_answers(network);
}

TEST_F(CompactNetwork, IsTheSameWhereNothingIsDead) {
  const NetworkData network = compacted(exported());
  EXPECT_EQ(network.graph.to_text(), exported().graph.to_text());
  for (const auto& [name, tensor] : exported().tensors)
    EXPECT_EQ(network.tensors.at(name).values, tensor.values) << name;
}

// Batch norms and instance norms between convolutions, sums, capsules that are no map.
TEST(CompactNetworks, OfAllKindsGiveTheSameLengths) {
  for (const auto& [name, context, options] :
       {std::tuple("eff-capsnet", testing::images(1, 28, 28), "{}"),
        std::tuple("eff-capsnet", testing::images(1, 28, 28), "{norm: instance}"),
        std::tuple("deepcaps", testing::images(1, 28, 28),
                   "{conv_channels: 8, types: 3, class_dim: 6}"),
        std::tuple("multilayer-dr-capsnet", testing::images(3, 32, 32), "{}")}) {
    const TemporaryFolder folder;
    torch::manual_seed(2);
    const auto model = testing::make(name, context, options);
    model->eval();
    testing::randomise(*model);
    const torch::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters()) {
      Tensor weight = item.value();
      if (weight.dim() != 4 || weight.size(2) != weight.size(3)) continue;
      for (int64_t f = 0; f < weight.size(0); f += 3) weight[f].zero_();  // every third filter
      if (weight.size(1) > 1) weight.select(1, 1).zero_();  // a channel that nobody reads
    }
    WeightsInfo info;
    info.context = context;
    info.recipe.name = "test/compact";
    info.recipe.model = name;
    for (int64_t j = 0; j < context.classes; ++j) info.class_names.push_back(std::to_string(j));
    testing::write_exported(folder / "original", *model, info);
    testing::write_network(folder / "compact",
                           compacted(testing::read_exported(folder / "original", *model)));
    const std::vector<float> images = floats_of(testing::random_images(*model, 2));
    const auto expected = runtime::Network(folder / "original").run(images).lengths;
    const auto found = runtime::Network(folder / "compact").run(images).lengths;
    for (size_t j = 0; j < found.size(); ++j) EXPECT_NEAR(found[j], expected[j], 1e-5) << name;
  }
}

TEST(KeptCapsules, AreRanges) {
  EXPECT_THAT(parse_kept("0-2,5-5", 6, "file"), ElementsAre(0, 1, 2, 5));
  for (const char* damaged : {"0", "2-1", "0-6", "0-2,2-3", "a-b", "-1-2", "0-1 2-3"})
    EXPECT_THROW(parse_kept(damaged, 6, "file"), Error) << damaged;
}

}  // namespace
}  // namespace remcaps
