#include "remcaps/evaluation/split_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace remcaps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::shared_ptr<CapsNet> small_network(const std::string& name, const std::string& options) {
  torch::manual_seed(7);
  ModelContext context;
  context.input = {1, 20, 20};
  context.classes = 4;
  ConfigSection section(YAML::Load(options), "test", "model");
  auto model = make_network(name, context, section);
  // Untrained votes are small and couplings stay uniform: larger ones make routing choose.
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters())
    if (parameter.key() == "class.weight") parameter.value().mul_(30);
  model->eval();
  return model;
}

const char* const kSmall = "{conv_channels: 8, primary_types: 2, routing: {iterations: ";

BatchSource random_images(int64_t count) {
  Dataset data;
  data.images = torch::randint(256, {count, 1, 20, 20}, torch::kUInt8);
  data.labels = torch::randint(4, {count}, torch::kLong);
  return BatchSource(data, AugmentOptions{}, torch::kCPU);
}

EvaluateOptions batches_of(int64_t size) {
  EvaluateOptions options;
  options.batch = size;
  return options;
}

TEST(ParseTreesOfNetwork, OneRoutingIterationHasEntropyExactlyZero) {
  const auto model = small_network("dr-capsnet", std::string(kSmall) + "1}}");
  const SplitMeasurement measured =
      measure_split(*model, random_images(50), {Quantizer::uniform(11)}, batches_of(16), true);
  EXPECT_EQ(measured.trees->last().entropy, 0);
  EXPECT_THAT(measured.trees->last().entropy_per_class, Each(0.0));
  EXPECT_NEAR(*measured.trees->last().t_score, 0, 1e-5);
}

TEST(ParseTreesOfNetwork, DictionaryEqualsAPlainCountOfQuantizedColumns) {
  const auto model = small_network("dr-capsnet", std::string(kSmall) + "3}}");
  const BatchSource source = random_images(60);
  const Quantizers quantizers = {Quantizer::uniform(6)};
  const ParseTreeReport report = measure_parse_trees(*model, source, quantizers, batches_of(16));

  const torch::NoGradGuard no_grad;
  std::vector<std::map<std::vector<int64_t>, int64_t>> dictionary(4);
  for (int64_t image = 0; image < source.size(); ++image) {
    ForwardOptions options;
    options.trace = true;
    options.quantizers = quantizers;
    const Forward forward = model->forward(source.evaluation_batch(image, 1).images, options);
    const int64_t j = forward.activations.argmax(1).item<int64_t>();
    const Tensor column = forward.routings.back().coupling[0].select(1, j);
    const Tensor levels = quantizers[0]->dictionary_indices(column);
    ++dictionary[j][{levels.data_ptr<int64_t>(), levels.data_ptr<int64_t>() + levels.numel()}];
  }
  int64_t distinct = 0;
  for (size_t j = 0; j < dictionary.size(); ++j) {
    EXPECT_EQ(report.last().keys_per_class[j], static_cast<int64_t>(dictionary[j].size()));
    std::vector<int64_t> counts;
    for (const auto& [key, count] : dictionary[j]) counts.push_back(count);
    EXPECT_DOUBLE_EQ(report.last().entropy_per_class[j], entropy_bits(counts));
    distinct += static_cast<int64_t>(dictionary[j].size());
  }
  EXPECT_GT(distinct, 4) << "the network is too regular to test anything";
}

TEST(ParseTreesOfNetwork, HiddenLayersHaveTheirOwnKAndDictionary) {
  const auto model =
      small_network("gamma-capsnet", "{conv_channels: 8, primary_types: 2, hidden: [6]}");
  const SplitMeasurement measured =
      measure_split(*model, random_images(24), {Quantizer::uniform(11), Quantizer::uniform(6)},
                    batches_of(8), true);
  const ParseTreeReport& trees = *measured.trees;
  ASSERT_EQ(trees.layers.size(), 2u);
  EXPECT_EQ(trees.layers[0].levels, 11);
  EXPECT_EQ(trees.layers[1].levels, 6);
  EXPECT_TRUE(trees.layers[0].t_score && trees.layers[0].d_score);
  nlohmann::json json;
  add_parse_trees(json, trees);
  EXPECT_THAT(json.at("levels").get<std::vector<int64_t>>(), ElementsAre(11, 6));
  for (const char* key : {"accuracy_quantized", "entropy", "entropy_per_class", "keys_per_class",
                          "samples_per_class", "median_keys"})
    EXPECT_TRUE(json.contains(key)) << key;
}

TEST(ParseTreesOfNetwork, WithoutALastQuantizerThereAreNoTrees) {
  const auto model = small_network("dr-capsnet", std::string(kSmall) + "3}}");
  const SplitMeasurement measured =
      measure_split(*model, random_images(8), {std::nullopt}, batches_of(8), true);
  EXPECT_EQ(measured.plain.samples, 8);
  EXPECT_FALSE(measured.trees.has_value());
}

TEST(ParseTreesOfNetwork, LevelsAreFoundOnTheWholeCurve) {
  const auto model = small_network("dr-capsnet", std::string(kSmall) + "3}}");
  LevelOptions options;
  options.candidates = {2, 11, 256};
  options.tolerance = 0.01;
  std::vector<int64_t> passes;
  const LevelChoice choice = find_levels(*model, random_images(40), options, batches_of(20),
                                         [&](int64_t pass, int64_t of) {
                                           EXPECT_EQ(of, 4);
                                           passes.push_back(pass);
                                         });
  EXPECT_THAT(passes, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(choice.curves.size(), 1u);
  ASSERT_EQ(choice.curves[0].points.size(), 3u);
  EXPECT_GT(choice.curves[0].chosen, 0) << "256 levels change nothing";
  // More levels tell more trees apart.
  EXPECT_LE(choice.curves[0].points[0].entropy, choice.curves[0].points[2].entropy);
}

}  // namespace
}  // namespace remcaps
