// What is particular to one network, and how networks are found by name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/models/deepcaps.h"
#include "remcaps/models/dr_capsnet.h"
#include "remcaps/models/eff_capsnet.h"
#include "remcaps/models/resnet18_capsnet.h"
#include "remcaps/torch/safetensors.h"
#include "tests/models/make.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;
using testing::images;
using testing::make;
using testing::random_images;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Registry, KnowsEveryNetworkAndSuggestsTheNearest) {
  EXPECT_THAT(
      network_names(),
      ::testing::IsSupersetOf({"dr-capsnet", "gamma-capsnet", "deepcaps", "eff-capsnet",
                               "eff-conv-capsnet", "multilayer-dr-capsnet", "resnet18-capsnet"}));
  EXPECT_THAT(message_of([] { make("dr-capnet", images(1, 28, 28)); }),
              HasSubstr("did you mean dr-capsnet?"));
}

TEST(Registry, UnknownOptionsAndValuesOutOfRangeAreErrors) {
  EXPECT_THAT(message_of([] { make("dr-capsnet", images(1, 28, 28), "{primary_typs: 3}"); }),
              HasSubstr("primary_types"));
  EXPECT_THAT(
      message_of([] { make("dr-capsnet", images(1, 28, 28), "{routing: {iterations: 0}}"); }),
      HasSubstr("model.routing.iterations is 0; expected 1 to 16"));
  EXPECT_THAT(
      message_of([] { make("gamma-capsnet", images(1, 28, 28), "{routing: {gradient: half}}"); }),
      HasSubstr("one of last, full"));
  EXPECT_THAT(message_of([] { make("eff-capsnet", images(1, 28, 28), "{conv_kernels: [5, 3]}"); }),
              HasSubstr("conv_kernels"));
}

// Shapes, kinds and costs of all layers.
std::string layers_of(const CapsNet& network) {
  std::string text;
  for (const LayerCost& row : network.costs())
    text += fmt::format("{} {} {} {} {}\n", row.name, row.kind, row.parameters, row.multiply_adds,
                        row.activation_floats);
  return text;
}

TEST(OptionStructs, MakeTheSameNetworksAsRecipes) {
  const ModelContext small = images(1, 28, 28), stereo = images(2, 48, 48, 5);
  EXPECT_EQ(layers_of(DrCapsNet(small, {.conv_channels = 8,
                                        .padding = DrCapsNetOptions::Padding::kSame,
                                        .routing = DynamicRouting{.iterations = 2},
                                        .decoder = {.kind = DecoderOptions::Kind::kConv}})),
            layers_of(*make(
                "dr-capsnet", small,
                "{conv_channels: 8, padding: same, routing: {iterations: 2}, decoder: conv}")));
  EXPECT_EQ(layers_of(DrCapsNet(small, DrCapsNetOptions::gamma())),
            layers_of(*make("gamma-capsnet", small)));
  EXPECT_EQ(layers_of(DeepCaps(small, DeepCapsOptions::original())),
            layers_of(*make("deepcaps", small, "{variant: original}")));
  EXPECT_EQ(layers_of(EffCapsNet(stereo, EffCapsNetOptions::smallnorb())),
            layers_of(*make("eff-capsnet", stereo)));
  EXPECT_THROW(EffCapsNet(small, {.backbone = {.channels = {8, 8}}}), Error);
}

TEST(Shapes, ErrorsNameTheKernelAndTheMap) {
  EXPECT_EQ(message_of([] { make("dr-capsnet", images(1, 15, 15)); }),
            "dr-capsnet: primary kernel 9x9 does not fit the 7x7 map of conv1 (input 15x15)");
  EXPECT_EQ(message_of([] { make("dr-capsnet", images(1, 5, 30)); }),
            "dr-capsnet: conv1 kernel 9x9 does not fit the 5x30 input");
  EXPECT_EQ(message_of([] { make("eff-conv-capsnet", images(3, 28, 28)); }),
            "eff-conv-capsnet: conv_caps kernel 3x3 does not fit the 1x1 map of primary (input "
            "28x28)");
}

TEST(DrCapsNet, GridAndCouplingsFollowTypeRowColumn) {
  const auto model = make("dr-capsnet", images(1, 28, 28));
  EXPECT_EQ(model->routing_layers()[0].children, 1152);
  const auto costs = model->costs();
  ASSERT_EQ(costs.size(), 3u);
  EXPECT_EQ(costs[0].output, (std::vector<int64_t>{256, 20, 20}));
  EXPECT_EQ(costs[1].output, (std::vector<int64_t>{1152, 8}));
  EXPECT_EQ(costs[1].multiply_adds, int64_t{5308416} * 36);
  EXPECT_EQ(costs[2].vote_floats, 1152 * 10 * 16);
  EXPECT_EQ(costs[2].multiply_adds, 1152 * 10 * 16 * (8 + 5));
}

TEST(DrCapsNet, ACapsuleOfTheSixBySixGridSeesSeventeenPixels) {
  const auto model = make("dr-capsnet", images(1, 28, 28), "{conv_channels: 4, primary_types: 1}");
  ForwardOptions options;
  options.trace = true;
  const CapsuleGrid grid = model->forward(random_images(*model, 1), options).routings[0].grids[0];
  ASSERT_EQ(grid.height, 6);
  for (const ReceptiveField::Axis& axis : {grid.field->y, grid.field->x}) {
    EXPECT_EQ(axis.size, 17);
    EXPECT_EQ(axis.first, 8);
    EXPECT_EQ(axis.step, 2);
  }
}

TEST(DrCapsNet, OneRoutingIterationCouplesUniformly) {
  const auto model = make("dr-capsnet", images(1, 28, 28),
                          "{conv_channels: 8, primary_types: 2, routing: {iterations: 1}}");
  ForwardOptions options;
  options.trace = true;
  const torch::NoGradGuard no_grad;
  const Tensor coupling = model->forward(random_images(*model, 2), options).routings[0].coupling;
  EXPECT_LT((coupling - 0.1).abs().max().item<double>(), 1e-7);
}

TEST(DrCapsNet, AnyRoutingAlgorithmCanBeChosen) {
  for (const std::string algorithm : {"dynamic", "scaled-distance", "self-attention"}) {
    const auto model =
        make("dr-capsnet", images(1, 20, 20),
             "{conv_channels: 8, primary_types: 2, routing: {algorithm: " + algorithm + "}}");
    EXPECT_THAT(model->costs().back().kind, HasSubstr(algorithm));
    EXPECT_TRUE(torch::isfinite(model->forward(random_images(*model, 2)).poses).all().item<bool>());
  }
}

TEST(Decoder, UsesTheTrueClassWhereGivenAndElseThePredictedOne) {
  const auto model = make("dr-capsnet", images(1, 28, 28),
                          "{conv_channels: 8, primary_types: 2, decoder: fc, decoder_hidden: [8]}");
  model->eval();
  const torch::NoGradGuard no_grad;
  const Tensor batch = random_images(*model, 4);
  ForwardOptions options;
  options.reconstruct = true;
  const Forward predicted = model->forward(batch, options);
  options.labels = predicted.activations.argmax(1);
  EXPECT_TRUE(
      torch::equal(model->forward(batch, options).reconstruction, predicted.reconstruction));
  options.labels = (options.labels + 1) % 10;
  EXPECT_FALSE(
      torch::equal(model->forward(batch, options).reconstruction, predicted.reconstruction));
}

TEST(Decoder, AbsentOneIsAnError) {
  const auto model = make("eff-capsnet", images(1, 28, 28));
  EXPECT_THAT(message_of([&] {
                model->decode(torch::zeros({1, 10, 16}));
              }),
              HasSubstr("has no decoder"));
}

TEST(DeepCaps, HasTwoGridsAndARoutedConvolution) {
  const auto model = make("deepcaps", images(1, 28, 28));
  const auto layers = model->routing_layers();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].name, "caps31");
  EXPECT_TRUE(layers[0].convolutional);
  EXPECT_EQ(layers[1].children, 640);
  model->eval();
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  const Forward forward = model->forward(random_images(*model, 1), options);
  EXPECT_EQ(forward.routings[0].coupling.sizes(), torch::IntArrayRef({1, 4, 32, 32}));
  ASSERT_EQ(forward.routings[1].grids.size(), 2u);
  const CapsuleGrid second = forward.routings[1].grids[1];
  EXPECT_EQ(second.offset, 512);
  EXPECT_EQ(second.height, 2);
  EXPECT_EQ(second.stride_type, 1);
}

TEST(DeepCaps, RunningStatisticsFollowTheNewBatchAlmostWholly) {
  const auto model = make("deepcaps", images(1, 28, 28), "{types: 2, conv_channels: 4}");
  model->train();
  const torch::NoGradGuard no_grad;
  const Tensor batch = random_images(*model, 4);
  model->forward(batch);
  const auto parameters = model->named_parameters();
  const Tensor map =
      torch::conv2d(batch, parameters["conv1.weight"], parameters["conv1.bias"], 1, 1);
  EXPECT_LT((model->named_buffers()["bn1.running_mean"] - 0.99 * map.mean({0, 2, 3}))
                .abs()
                .max()
                .item<double>(),
            1e-5);
}

TEST(EffCapsNet, TwoChannelsChooseTheStereoBackbone) {
  const auto model = make("eff-capsnet", images(2, 48, 48, 5));
  EXPECT_THAT(model->costs()[0].kind, HasSubstr("7x7 s2 + LeakyReLU + instance norm"));
  const auto other = make("eff-capsnet", images(2, 48, 48, 5), "{variant: mnist}");
  EXPECT_THAT(other->costs()[0].kind, HasSubstr("5x5 + ReLU + batch norm"));
}

TEST(EffCapsNet, ReportsCouplingsThePriorPushedOut) {
  const auto model = make("eff-capsnet", images(1, 28, 28));
  model->eval();
  const torch::NoGradGuard no_grad;
  model->named_parameters()["class.prior"].fill_(-2.0);
  ForwardOptions options;
  options.trace = true;
  options.quantizers = {Quantizer::uniform(11)};
  const Forward forward = model->forward(random_images(*model, 3), options);
  EXPECT_EQ(forward.routings[0].clamped, 3 * 16 * 10);
}

TEST(GammaCapsNet, StaysFiniteWhereMatricesArePrunedWholly) {
  const auto model =
      make("gamma-capsnet", images(1, 28, 28), "{conv_channels: 8, primary_types: 2, hidden: [4]}");
  {
    const torch::NoGradGuard no_grad;
    model->named_parameters()["hidden.weight"].zero_();
    model->named_parameters()["class.weight"][1].zero_();
  }
  const Forward forward = model->forward(random_images(*model, 2));
  forward.activations.sum().backward();
  EXPECT_TRUE(torch::isfinite(forward.poses).all().item<bool>());
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
}

TEST(Resnet18CapsNet, AFrozenBackboneNeitherTrainsNorCountsBatches) {
  const auto model = make("resnet18-capsnet", images(3, 64, 64, 4));
  model->train();
  const Tensor before = model->named_buffers()["backbone.bn1.running_mean"].clone();
  model->forward(random_images(*model, 2)).activations.sum().backward();
  EXPECT_TRUE(torch::equal(before, model->named_buffers()["backbone.bn1.running_mean"]));
  EXPECT_FALSE(model->named_parameters()["backbone.conv1.weight"].grad().defined());
  EXPECT_TRUE(model->named_parameters()["primary.conv.weight"].grad().defined());

  const auto trained = make("resnet18-capsnet", images(3, 64, 64, 4), "{freeze: false}");
  trained->forward(random_images(*trained, 2)).activations.sum().backward();
  EXPECT_TRUE(trained->named_parameters()["backbone.conv1.weight"].grad().defined());
}

TEST(Resnet18CapsNet, LoadsTorchvisionsNamesAndSaysWhatIsMissing) {
  const testing::TemporaryFolder folder;
  const auto source = make("resnet18-capsnet", images(3, 64, 64, 4));
  TensorMap tensors;
  for (const auto& item : source->named_parameters())
    if (item.key().rfind("backbone.", 0) == 0)
      tensors[item.key().substr(9)] = item.value().detach().clone();
  for (const auto& item : source->named_buffers())
    tensors[item.key().substr(9)] = item.value().clone();
  EXPECT_EQ(tensors.count("layer2.0.downsample.0.weight"), 1u);
  EXPECT_EQ(tensors.count("layer4.1.bn2.running_var"), 1u);
  tensors["fc.weight"] = torch::zeros({1000, 512});
  const std::string path = (folder / "resnet18.safetensors").string();
  save_safetensors(path, tensors);

  const std::string options = "{backbone_weights: " + path + "}";
  const auto loaded = make("resnet18-capsnet", images(3, 64, 64, 4), options);
  for (const auto& item : loaded->named_parameters()) {
    if (item.key().rfind("backbone.", 0) == 0) {
      EXPECT_TRUE(torch::equal(item.value(), tensors[item.key().substr(9)])) << item.key();
    }
  }

  tensors.erase("layer3.1.conv2.weight");
  save_safetensors(path, tensors);
  EXPECT_THAT(message_of([&] { make("resnet18-capsnet", images(3, 64, 64, 4), options); }),
              HasSubstr("has no tensor layer3.1.conv2.weight"));
  // If a checkpoint is loaded next, the file need not exist.
  ModelContext context = images(3, 64, 64, 4);
  context.load_pretrained = false;
  make("resnet18-capsnet", context, "{backbone_weights: /nowhere.safetensors}");
}

TEST(Resnet18Classifier, HasTheBackboneOfTheCapsulesAndGivesProbabilities) {
  const auto classifier = make("resnet18", images(3, 64, 64, 4));
  const auto capsules = make("resnet18-capsnet", images(3, 64, 64, 4));
  const auto tensors_of = [](CapsNet& network) {
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const auto& item : network.named_parameters())
      shapes[item.key()] = item.value().sizes().vec();
    for (const auto& item : network.named_buffers())
      shapes[item.key()] = item.value().sizes().vec();
    std::erase_if(shapes, [](const auto& each) { return !each.first.starts_with("backbone."); });
    return shapes;
  };
  EXPECT_EQ(tensors_of(*classifier), tensors_of(*capsules));
  EXPECT_EQ(classifier->all_parameters(), 11'176'512 + 512 * 4 + 4);  // torchvision's and 4 classes
  EXPECT_EQ(classifier->trainable_parameters(), classifier->all_parameters());
  int64_t planned = 0;
  for (const LayerCost& row : classifier->costs()) planned += row.parameters;
  EXPECT_EQ(planned, classifier->all_parameters());

  classifier->eval();
  const Forward forward = classifier->forward(random_images(*classifier, 3));
  EXPECT_TRUE(torch::allclose(forward.activations.sum(1), torch::ones({3})));
  EXPECT_EQ(forward.poses.sizes(), torch::IntArrayRef({3, 4, 1}));
  EXPECT_TRUE(classifier->routing_layers().empty());
}

TEST(Resnet18CapsNet, PadsTheBackbonesMapToThirtySixCapsules) {
  const auto model = make("resnet18-capsnet", images(3, 224, 224, 200));
  EXPECT_EQ(model->routing_layers()[0].children, 36);
}

}  // namespace
}  // namespace remcaps
