// The runtime gives the answers of the libtorch path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "remcaps/base/error.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/data/batches.h"
#include "remcaps/data/formats/picture_file.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/runs/zoo.h"
#include "tests/models/make.h"
#include "tests/runtime/exported.h"
#include "tests/scoped_variable.h"

namespace remcaps {
namespace {

using testing::floats_of;
using testing::TemporaryFolder;

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    largest = difference <= largest ? largest : difference;  // NaN counts
  }
  return largest;
}

// One pass of each program over the images, one by one if images affect each other.
Forward libtorch_pass(CapsNet& model, const Tensor& images, const ForwardOptions& options) {
  if (model.images_are_independent()) return model.forward(images, options);
  Forward all;
  std::vector<Tensor> activations, poses;
  std::vector<std::vector<Tensor>> couplings(model.routing_layers().size());
  std::vector<std::vector<Tensor>> children(couplings.size());
  for (int64_t i = 0; i < images.size(0); ++i) {
    Forward one = model.forward(images.slice(0, i, i + 1), options);
    activations.push_back(one.activations);
    poses.push_back(one.poses);
    for (size_t layer = 0; layer < one.routings.size(); ++layer) {
      couplings[layer].push_back(one.routings[layer].coupling);
      children[layer].push_back(one.routings[layer].child_activations);
    }
    all = std::move(one);
  }
  all.activations = torch::cat(activations);
  all.poses = torch::cat(poses);
  for (size_t layer = 0; layer < all.routings.size(); ++layer) {
    all.routings[layer].coupling = torch::cat(couplings[layer]);
    all.routings[layer].child_activations = torch::cat(children[layer]);
  }
  return all;
}

struct Differences {
  float lengths = 0, poses = 0, couplings = 0, saliency = 0;
  int64_t images = 0, classes = 0;   ///< all of them, and those with another prediction
  int64_t levels = 0, compared = 0;  ///< indices that differ, and all of them
  /// Of those that differ: whose coupling lay on an edge between two levels, or in an image that
  /// has such a coupling in a layer below.
  int64_t ties = 0;

  void add(const Differences& more) {
    lengths = std::max(lengths, more.lengths);
    poses = std::max(poses, more.poses);
    couplings = std::max(couplings, more.couplings);
    saliency = std::max(saliency, more.saliency);
    images += more.images;
    classes += more.classes;
    levels += more.levels;
    compared += more.compared;
    ties += more.ties;
  }
};

// Whether both programs may round a coupling to either of two levels.
bool is_tie(float coupling, const Quantizer& quantizer) {
  constexpr float kMost = 1e-5F;
  return std::any_of(quantizer.inner_edges().begin(), quantizer.inner_edges().end(),
                     [&](float edge) { return std::abs(coupling - edge) <= kMost; });
}

// The largest difference of saliency maps, as a share of the largest value.
float compare_saliency(const CapsNet& model, const runtime::Network& network,
                       const Forward& expected, const runtime::Answer& answer) {
  const bool placed = std::any_of(expected.routings.begin(), expected.routings.end(), has_place);
  EXPECT_EQ(network.has_saliency(), placed);
  if (!placed) return 0;
  const Tensor classes = predicted_classes(expected);
  const size_t layer = saliency_layer(expected.routings, "network");
  const Tensor maps = saliency(expected.routings, layer, classes, model.input()).map;
  float largest = 0;
  for (int64_t image = 0; image < answer.images; ++image) {
    const std::vector<float> ours = network.saliency(answer, image, classes[image].item<int64_t>());
    largest = std::max(largest, largest_difference(ours, floats_of(maps[image])) /
                                    maps[image].max().item<float>());
  }
  return largest;
}

Differences compare(CapsNet& model, const runtime::Network& network, const Tensor& images,
                    const std::vector<std::optional<Quantizer>>& quantizers) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const std::vector<float> input = floats_of(images);
  Differences found;
  ForwardOptions plain;
  plain.trace = true;
  found.images = images.size(0);
  const Forward expected = libtorch_pass(model, images, plain);
  const runtime::Answer answer = network.run(input, {.couplings = true});
  found.lengths = largest_difference(answer.lengths, floats_of(expected.activations));
  found.poses = largest_difference(answer.poses, floats_of(expected.poses));
  EXPECT_EQ(answer.couplings.size(), expected.routings.size());
  for (size_t layer = 0; layer < expected.routings.size(); ++layer)
    found.couplings = std::max(
        found.couplings,
        largest_difference(answer.couplings[layer], floats_of(expected.routings[layer].coupling)));
  found.saliency = compare_saliency(model, network, expected, answer);
  const Tensor classes = predicted_classes(expected);
  for (int64_t image = 0; image < found.images; ++image)
    found.classes += answer.predicted(image) != classes[image].item<int64_t>() ? 1 : 0;
  const runtime::Answer levels = network.run(input, {.couplings = true, .quantize = true});
  std::vector<bool> tied(static_cast<size_t>(found.images));
  ForwardOptions below = plain;  // the layers below are quantized
  below.quantizers.resize(quantizers.size());
  Forward exact = expected;
  for (size_t layer = 0; layer < quantizers.size(); ++layer) {
    if (!quantizers[layer]) continue;
    below.quantizers[layer] = quantizers[layer];
    Forward rounded = libtorch_pass(model, images, below);
    const std::vector<uint8_t> ours = network.level_indices(levels, layer);
    const std::vector<float> couplings = floats_of(exact.routings[layer].coupling);
    const Tensor theirs =
        level_indices(rounded.routings[layer].coupling, *quantizers[layer]).flatten().contiguous();
    EXPECT_EQ(static_cast<int64_t>(ours.size()), theirs.numel());
    const size_t of_image = ours.size() / static_cast<size_t>(found.images);
    std::vector<bool> tied_here = tied;
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] == theirs.data_ptr<int64_t>()[i]) continue;
      ++found.levels;
      const size_t image = i / of_image;
      if (is_tie(couplings[i], *quantizers[layer]))
        tied_here[image] = true;
      else if (!tied[image])
        continue;
      ++found.ties;
    }
    tied = tied_here;
    found.compared += theirs.numel();
    exact = std::move(rounded);
  }
  return found;
}

// What the answer for one image is made of, as both programs say it.
void compare_contributions(CapsNet& model, const runtime::Network& network, const Tensor& images,
                           const std::vector<std::optional<Quantizer>>& quantizers) {
  const torch::NoGradGuard no_grad;
  model.eval();
  for (const bool quantize : {false, true}) {
    const runtime::Answer answer = network.run(
        floats_of(images), {.couplings = true, .quantize = quantize, .contributions = true});
    ForwardOptions options{.trace = true, .contributions = true, .quantizers = {}, .labels = {}};
    if (quantize) options.quantizers = quantizers;
    for (int64_t i = 0; i < images.size(0); ++i) {
      const Forward forward = model.forward(images.slice(0, i, i + 1), options);
      const size_t layer = first_chained_layer(forward.routings);
      ASSERT_EQ(network.contribution_layer(), layer);
      const remcaps::Evidence expected =
          evidence_for(forward.routings, layer, predicted_classes(forward));
      const std::vector<float> children = floats_of(expected.children.to(torch::kFloat));
      const auto at = static_cast<size_t>(i);
      const auto first = answer.contributions.begin() + i * expected.children.size(1);
      const float total = expected.total().item<float>();
      EXPECT_LE(largest_difference({first, first + expected.children.size(1)}, children),
                1e-5F * std::max(1.0F, total));
      EXPECT_NEAR(answer.evidence[at], total, 1e-5 * std::max(1.0F, total));
      EXPECT_NEAR(answer.bias_evidence[at], expected.bias.item<float>(),
                  1e-5 * std::max(1.0F, total));
      EXPECT_NEAR(std::accumulate(first, first + expected.children.size(1),
                                  static_cast<double>(answer.bias_evidence[at])),
                  answer.evidence[at], 1e-5 * std::max(1.0F, total));
    }
  }
}

struct Case {
  const char* network;
  ModelContext context;
  const char* options;
};

std::ostream& operator<<(std::ostream& out, const Case& it) {
  return out << it.network << " " << it.options;
}

class RandomNetwork : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Runtime, RandomNetwork,
    ::testing::Values(
        Case{"dr-capsnet", testing::images(1, 28, 28), "{conv_channels: 40, primary_types: 4}"},
        Case{"dr-capsnet", testing::images(3, 21, 26, 4),
             "{convs: 2, conv_kernel: 5, conv_channels: 8, primary_types: 3, padding: same, "
             "routing: {iterations: 1, bias: last}}"},
        Case{"gamma-capsnet", testing::images(1, 28, 28),
             "{conv_channels: 32, primary_types: 4, hidden: [5]}"},
        Case{"deepcaps", testing::images(1, 28, 28), "{conv_channels: 8, types: 3, class_dim: 6}"},
        Case{"deepcaps", testing::images(3, 19, 33, 3),
             "{variant: original, conv_channels: 8, types: 3, class_dim: 6}"},
        Case{"eff-capsnet", testing::images(1, 28, 28), "{}"},
        Case{"eff-capsnet", testing::images(2, 48, 48, 5), "{}"},
        Case{"eff-capsnet", testing::images(1, 28, 28),
             "{routing: {agreement: self, prior: exact}}"},
        Case{"eff-conv-capsnet", testing::images(3, 48, 44, 3),
             "{conv_channels: [8, 8, 8, 16], primary_dim: 4, conv_caps_types: 3, conv_caps_dim: "
             "5, class_dim: 6}"},
        Case{"eff-conv-capsnet", testing::images(3, 48, 44, 3),
             "{conv_channels: [8, 8, 8, 16], primary_dim: 4, conv_caps_types: 3, conv_caps_dim: "
             "5, class_dim: 6, share: none, routing: {bias: every}}"},
        Case{"multilayer-dr-capsnet", testing::images(3, 32, 32), "{}"},
        Case{"resnet18-capsnet", testing::images(3, 64, 64, 7), "{}"}));

TEST_P(RandomNetwork, HasTheLengthsPosesCouplingsAndLevelsOfTheLibtorchPath) {
  const TemporaryFolder folder;
  torch::manual_seed(7);
  const auto model = testing::make(GetParam().network, GetParam().context, GetParam().options);
  testing::randomise(*model);
  WeightsInfo info;
  info.context = GetParam().context;
  info.recipe.name = "test/network";
  info.recipe.model = GetParam().network;
  for (int64_t j = 0; j < GetParam().context.classes; ++j)
    info.class_names.push_back(std::to_string(j));
  const auto path = folder / "network.safetensors";
  testing::write_exported(path, *model, info);
  const runtime::Network network(path);
  const auto quantizers = info.recipe.quantize.quantizers(model->routing_layers().size());
  for (const int64_t batch : {1, 3}) {
    const Differences found =
        compare(*model, network, testing::random_images(*model, batch), quantizers);
    EXPECT_LE(found.lengths, 1e-5F);
    EXPECT_LE(found.poses, 1e-5F);
    EXPECT_LE(found.couplings, 1e-5F);
    EXPECT_LE(found.saliency, 1e-5F);
    EXPECT_EQ(found.levels, 0) << "of " << found.compared;
  }
  compare_contributions(*model, network, testing::random_images(*model, 2), quantizers);
}

// The networks that come with the program, as they are.
class ZooNetwork : public ::testing::TestWithParam<std::string> {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ZooNetwork);
INSTANTIATE_TEST_SUITE_P(Runtime, ZooNetwork, ::testing::ValuesIn([] {
                           const testing::ScopedVariable models("REMCAPS_MODELS",
                                                                REMCAPS_MODELS_FOLDER);
                           return zoo_names();
                         }()));

// How many images to compare: more if a person asks (docs/embed.md).
int64_t wanted_images(const LoadedRun& run) {
  const char* wanted = std::getenv("REMCAPS_TEST_IMAGES");
  if (wanted != nullptr) return std::stoll(wanted);
  return run.recipe.model == "deepcaps" ? 8 : 32;
}

// Test images where the data set is installed; images of noise for others.
struct SomeImages {
  Tensor images;
  bool real = false;
};
SomeImages some_images(const LoadedRun& run, const runtime::Network& network, int64_t count) {
  static std::map<std::string, DataSplits> known;
  const std::string& name = run.recipe.dataset.name;
  try {
    if (!known.contains(name)) known.emplace(name, run.load_data(""));
  } catch (const Error&) {
    return {testing::random_images(*run.model, count)};
  }
  const Tensor bytes = known.at(name).split("test").images.slice(0, 0, count).contiguous();
  const Tensor images = prepare_images(bytes, run.recipe.dataset.augment);
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor pixels = bytes[i].permute({1, 2, 0}).contiguous();
    const runtime::Picture picture{pixels.data_ptr<uint8_t>(), pixels.size(0), pixels.size(1),
                                   pixels.size(2)};
    EXPECT_EQ(network.prepare(picture), floats_of(images[i]));
  }
  return {images, true};
}

TEST_P(ZooNetwork, AnswersAsTheProgramDoes) {
  const auto path = std::filesystem::path(REMCAPS_MODELS_FOLDER) / (GetParam() + ".safetensors");
  const LoadedRun run = load_run(path, torch::kCPU);
  const runtime::Network network(path);
  torch::manual_seed(3);
  const auto [images, real] = some_images(run, network, wanted_images(run));
  const auto quantizers = run.recipe.quantize.quantizers(run.model->routing_layers().size());
  Differences found;
  constexpr int64_t kBatch = 50;
  for (const Tensor& batch : images.split(kBatch))
    found.add(compare(*run.model, network, batch, quantizers));
  EXPECT_LE(found.lengths, 1e-5F);
  EXPECT_LE(found.couplings, 1e-5F);
  EXPECT_LE(found.saliency, 1e-5F);
  EXPECT_EQ(found.classes, 0);
  EXPECT_EQ(found.levels, found.ties) << "of " << found.compared;
  compare_contributions(*run.model, network, images.slice(0, 0, 4), quantizers);
  const std::vector<float> input = floats_of(images.slice(0, 0, 3));
  const runtime::Answer together = network.run(input, {.couplings = true});
  const size_t floats = input.size() / 3, classes = together.lengths.size() / 3;
  const runtime::Answer alone =
      network.run(std::span(input).subspan(floats, floats), {.couplings = true});
  for (size_t j = 0; j < classes; ++j)
    EXPECT_NEAR(alone.lengths[j], together.lengths[classes + j], 1e-6);
  for (size_t layer = 0; layer < alone.couplings.size(); ++layer) {
    const std::vector<float>& one = alone.couplings[layer];
    const auto second = together.couplings[layer].begin() + static_cast<int64_t>(one.size());
    EXPECT_LE(largest_difference(one, {second, second + static_cast<int64_t>(one.size())}), 1e-6F);
  }
  fmt::print("| {} | {}{} | {:.1e} | {:.1e} | {} of {} | {} |\n", GetParam(), found.images,
             real ? "" : " (noise)", found.lengths, found.couplings, found.levels, found.compared,
             found.ties);
}

// Batches are cut into groups of images that share their work, and single ones.
TEST(Runtime, AnImageOfAnyBatchHasTheBitsItHasAlone) {
  for (const std::string name : {"mnist/dr-capsnet-rem-tolerance-3", "mnist/dr-capsnet-rem"}) {
    SCOPED_TRACE(name);
    runtime::Network network(std::filesystem::path(REMCAPS_MODELS_FOLDER) /
                             (name + ".safetensors"));
    const auto floats = static_cast<size_t>(network.input_floats());
    torch::manual_seed(5);
    const std::vector<float> images = floats_of(torch::randn({35, network.input_floats()}));
    for (const int threads : {1, 2}) {
      network.set_threads(threads);
      const runtime::Answer together = network.run(images, {.couplings = true});
      for (size_t image = 0; image < images.size() / floats; ++image) {
        const runtime::Answer alone =
            network.run(std::span(images).subspan(image * floats, floats), {.couplings = true});
        const auto is_part = [&](const std::vector<float>& of_one, const std::vector<float>& all) {
          return std::equal(of_one.begin(), of_one.end(),
                            all.begin() + static_cast<int64_t>(image * of_one.size()));
        };
        EXPECT_TRUE(is_part(alone.lengths, together.lengths)) << "image " << image;
        EXPECT_TRUE(is_part(alone.poses, together.poses)) << "image " << image;
        EXPECT_TRUE(is_part(alone.couplings[0], together.couplings[0])) << "image " << image;
      }
    }
  }
}

TEST(Runtime, PreparesPicturesAsTheProgramDoes) {
  const TemporaryFolder folder;
  const LoadedRun run =
      load_run(std::filesystem::path(REMCAPS_MODELS_FOLDER) / "cifar10/eff-capsnet-rem.safetensors",
               torch::kCPU);
  const auto path = folder / "network.safetensors";
  testing::write_exported(path, *run.model, {run.recipe, run.context, run.class_names, run.epoch});
  const runtime::Network network(path);
  const std::filesystem::path file = REMCAPS_PICTURE;
  const DecodedPicture picture = read_picture(file);
  for (const bool invert : {false, true})
    EXPECT_EQ(network.prepare({picture.pixels.data(), picture.header.height, picture.header.width,
                               picture.header.channels},
                              invert),
              floats_of(run.read_input(file, invert)));
}

}  // namespace
}  // namespace remcaps
