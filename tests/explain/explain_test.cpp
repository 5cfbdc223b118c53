#include "remcaps/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/data/formats/image_file.h"
#include "remcaps/torch/safetensors.h"
#include "tests/explain/tiny_run.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;

class ExplainImage : public ::testing::Test {
 protected:
  static torch::Tensor first_image(const LoadedRun& run) {
    return run.source(run.load_data(""), "test").evaluation_batch(0, 1).images;
  }

  ExplanationFiles explain(const std::string& run_folder, const ExplainOptions& options = {}) {
    const LoadedRun run = load_run(run_folder, torch::kCPU);
    return explain_image(run, first_image(run), options, runs_.folder() / "out" / "picture");
  }

  std::filesystem::path file(const std::string& suffix) const {
    return runs_.folder() / "out" / ("picture" + suffix);
  }

  testing::TinyRuns runs_;
};

TEST_F(ExplainImage, WritesAllTheNetworkCanShow) {
  const ExplanationFiles explanation = explain(runs_.on_grid());
  EXPECT_GE(explanation.plain.predicted, 0);
  EXPECT_LT(explanation.plain.predicted, 3);
  ASSERT_EQ(explanation.files.size(), 4u);
  for (const auto& written : explanation.files) EXPECT_TRUE(std::filesystem::exists(written));
  EXPECT_EQ(explanation.files[0], file("-overlay.png"));
  EXPECT_THAT(read_file(file("-tree.svg")), HasSubstr("</svg>"));
}

TEST_F(ExplainImage, GivesTheAnswerWithAndWithoutQuantizedCouplings) {
  LoadedRun run = load_run(runs_.layered(), torch::kCPU);
  // Couplings of an untrained network are all near 1/3: two levels leave nothing but biases.
  run.recipe.quantize.levels = {2};
  ForwardOptions how;
  how.quantizers = run.recipe.quantize.quantizers(2);
  const BatchSource source = run.source(run.load_data(""), "test");
  int64_t different = 0;
  for (int64_t place = 0; place < source.size(); ++place) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor image = source.evaluation_batch(place, 1).images;
    const ExplanationFiles explanation = explain_image(run, image, {}, runs_.folder() / "picture");
    const auto expect = [](const Answer& answer, const Forward& forward) {
      EXPECT_EQ(answer.predicted, forward.activations[0].argmax().item<int64_t>());
      EXPECT_NEAR(answer.activation, forward.activations.max().item<double>(), 1e-6);
    };
    expect(explanation.plain, run.model->forward(image));
    expect(explanation.quantized, run.model->forward(image, how));
    const bool same = explanation.plain.predicted == explanation.quantized.predicted;
    EXPECT_EQ(
        read_file(runs_.folder() / "picture-tree.svg").find("; unquantized") == std::string::npos,
        same);
    if (!same) ++different;
  }
  EXPECT_GT(different, 0);
}

TEST_F(ExplainImage, SomeImagesOfASplitAreAmongThemselvesWhatTheyAreAmongAll) {
  LoadedRun run = load_run(runs_.on_grid(), torch::kCPU);
  run.recipe.dataset.augment.pad = 3;
  run.recipe.dataset.augment.resize = 18;
  const DataSplits data = run.load_data("");
  const Dataset& test = data.split("test");
  const BatchSource some = run.source(test.select(torch::tensor({int64_t{7}, int64_t{2}})), "test");
  ASSERT_EQ(some.size(), 2);
  const BatchSource all = run.source(data, "test");
  EXPECT_TRUE(torch::equal(some.evaluation_batch(0, 1).images, all.evaluation_batch(7, 1).images));
  EXPECT_TRUE(torch::equal(some.evaluation_batch(1, 1).images, all.evaluation_batch(2, 1).images));
  run.recipe.dataset.augment.resize = 17;
  EXPECT_THROW(run.source(test.select(torch::tensor({int64_t{7}})), "test"), Error);
}

TEST_F(ExplainImage, ContributionsAreShownAndAddUpToTheEvidence) {
  const ExplanationFiles explanation = explain(runs_.on_grid());
  const AnswerEvidence& evidence = explanation.evidence;
  const double square = evidence.total() * evidence.total();
  EXPECT_NEAR(square / (1 + square), explanation.quantized.activation, 1e-5);
  EXPECT_EQ(evidence.layer, "class");
  EXPECT_GE(evidence.half, 1);
  EXPECT_LE(evidence.half, evidence.capsules);
  const TensorFile saved(file("-saliency.safetensors"));
  const auto sum = [&](const char* name) { return saved.load(name).sum().item<double>(); };
  EXPECT_NEAR(sum("map"), evidence.supporting - evidence.opposing, 1e-4);
  EXPECT_NEAR(sum("positive"), evidence.supporting, 1e-4);
  EXPECT_NEAR(sum("negative"), evidence.opposing, 1e-4);
  EXPECT_NEAR(sum("contributions"), sum("cells.0"), 1e-4);
  EXPECT_EQ(saved.load("map").sizes(), (std::vector<int64_t>{18, 18}));
  EXPECT_THAT(read_file(file("-tree.svg")), HasSubstr("share of the evidence"));
}

TEST_F(ExplainImage, StretchingIsAnotherMapOfTheSameCells) {
  const std::string folder = runs_.on_grid();
  const ExplainOptions placed = {.saliency = true, .tree_options = {.of = TreeOf::kCouplings}};
  explain(folder, placed);
  const torch::Tensor map = TensorFile(file("-saliency.safetensors")).load("map").clone();
  const torch::Tensor cells = TensorFile(file("-saliency.safetensors")).load("cells.0").clone();
  ExplainOptions stretched = placed;
  stretched.placement = Placement::kStretched;
  explain(folder, stretched);
  const TensorFile saved(file("-saliency.safetensors"));
  EXPECT_TRUE(saved.load("cells.0").equal(cells));
  EXPECT_NEAR(saved.load("map")[0][0].item<double>(), cells[0][0].item<double>(), 1e-6)
      << "the grid's corner lies on the image's";
  EXPECT_FALSE(saved.load("map").allclose(map));
}

TEST_F(ExplainImage, TheRawMapIsThatOfTheFormula) {
  const std::string folder = runs_.on_grid();
  explain(folder, {.saliency = true, .tree_options = {.of = TreeOf::kCouplings}});
  const TensorFile saved(file("-saliency.safetensors"));
  EXPECT_EQ(saved.metadata().at("layer"), "class");
  const torch::Tensor map = saved.load("map"), cells = saved.load("cells.0");
  EXPECT_EQ(map.sizes(), (std::vector<int64_t>{18, 18}));
  EXPECT_GE(map.min().item<float>(), 0);

  // E by hand, from the couplings themselves.
  const LoadedRun run = load_run(folder, torch::kCPU);
  ForwardOptions how;
  how.trace = true;
  how.quantizers = run.recipe.quantize.quantizers(1);
  const torch::NoGradGuard no_grad;
  const Forward forward = run.model->forward(first_image(run), how);
  const RoutingTrace& trace = forward.routings[0];
  const int64_t predicted = forward.activations[0].argmax().item<int64_t>();
  const int64_t height = cells.size(0), width = cells.size(1);
  for (int64_t m = 0; m < height; ++m)
    for (int64_t n = 0; n < width; ++n) {
      double sum = 0;
      for (int64_t o = 0; o < 4; ++o) {
        const int64_t i = (o * height + m) * width + n;
        sum += trace.child_activations[0][i].item<double>() *
               trace.coupling[0][i][predicted].item<double>();
      }
      EXPECT_NEAR(cells[m][n].item<double>(), sum / 4, 1e-6);
    }
}

TEST_F(ExplainImage, TheOverlayPictureShowsImageMapAndBoth) {
  explain(runs_.on_grid(), {.saliency = true});
  const ImageHeader header = read_image_header(file("-overlay.png"));
  EXPECT_EQ(header.height, 18 * 13);  // enlarged to at least 224
  EXPECT_EQ(header.width, 3 * header.height + 2 * 8);
}

TEST_F(ExplainImage, ANetworkWithoutAGridShowsItsTreeOnly) {
  const std::string folder = runs_.layered();
  const ExplanationFiles explanation = explain(folder);
  ASSERT_EQ(explanation.files.size(), 1u);
  EXPECT_EQ(explanation.files[0], file("-tree.svg"));
  EXPECT_THAT(read_file(file("-tree.svg")), HasSubstr("a &lt;b&gt; &amp; c"));
}

TEST_F(ExplainImage, WhatIsAskedForByNameAndMissingIsAnError) {
  const std::string folder = runs_.layered();
  const auto message = [&](const ExplainOptions& options) {
    try {
      explain(folder, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message({.saliency = true}), HasSubstr("lie on no grid"));
  EXPECT_THAT(message({.perturbations = true}), HasSubstr("without a decoder"));
}

TEST_F(ExplainImage, ConvolutionalCapsulesShowTheirOwnGridAndThePrimaryOne) {
  const std::string folder =
      runs_.make("conv",
                 "{name: eff-conv-capsnet, conv_channels: [4, 4], conv_kernels: [3, 3], "
                 "conv_strides: [1, 1], primary_dim: 2, conv_caps_types: 3, conv_caps_dim: 4, "
                 "class_dim: 4}");
  explain(folder, {.saliency = true});
  const auto cells_of = [&] {
    return TensorFile(file("-saliency.safetensors")).tensor("cells.0").shape;
  };
  const std::vector<int64_t> upper = cells_of();
  explain(folder, {.saliency = true, .layer = "conv_caps"});
  const std::vector<int64_t> lower = cells_of();
  EXPECT_GT(upper[0], 1);
  EXPECT_GT(lower[0], upper[0]) << "the primary grid is the finer one";
}

TEST_F(ExplainImage, DeepCapsCombinesItsTwoGrids) {
  const std::string folder =
      runs_.make("deep", "{name: deepcaps, conv_channels: 4, types: 2, class_dim: 4}",
                 "quantize: {levels: [0, 11]}");
  explain(folder, {.saliency = true});
  const TensorFile saved(file("-saliency.safetensors"));
  EXPECT_TRUE(saved.contains("cells.1"));
  EXPECT_EQ(saved.load("map").sizes(), (std::vector<int64_t>{18, 18}));
}

}  // namespace
}  // namespace remcaps
