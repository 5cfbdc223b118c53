// Parity with the authors' published models.
#include <fmt/format.h>

#include "remcaps/capsule/loss.h"
#include "tests/golden/golden_case.h"
#include "tests/models/make.h"

namespace remcaps {
namespace {

using testing::GoldenCase;

// The published name of a parameter -> ours. Layouts agree up to a reshape.
std::string our_name(std::string name) {
  const std::pair<const char*, const char*> renames[] = {
      {"primaryCaps.caps_poses", "primary.conv"},
      {"fcCaps.routing_bias", "hidden.bias"},
      {"fcCaps", "hidden"},
      {"classCaps.routing_bias", "class.bias"},
      {"classCaps.weight", "class.weight"},
      {"classCaps.W", "class.weight"},
      {"classCaps.b", "class.bias"},
      {"conv2dcaps_", "caps"},
      {"conv3dcaps_31.conv_3d", "caps31.conv"},
  };
  for (const auto& [published, ours] : renames)
    if (name.rfind(published, 0) == 0) return ours + name.substr(std::string(published).size());
  return name;
}

// The number that follows a word ("with mean 0.1307 std 0.3081").
double number_after(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word + " "); at != std::string::npos;
       at = text.find(word + " ", at + 1))
    if (std::isdigit(static_cast<unsigned char>(text.at(at + word.size() + 1))))
      return std::stod(text.substr(at + word.size() + 1));
  ADD_FAILURE() << "no " << word << " in \"" << text << "\"";
  return 0.0;
}

// The network of a golden file, its shapes read from the parameters the file lists.
std::shared_ptr<CapsNet> network_of(const GoldenCase& golden, KernelPath kernels) {
  const auto input = golden.input().sizes().vec();
  ModelContext context = testing::images(input[1], input[2], input[3]);
  context.kernels = kernels;
  if (golden.has_parameter("classCaps.W")) {
    context.classes = golden.parameter_shape("classCaps.W")[2];
    return testing::make("deepcaps", context);
  }
  const auto conv = golden.parameter_shape("conv1.weight");
  const auto primary = golden.parameter_shape("primaryCaps.caps_poses.weight");
  const bool gamma = golden.has_parameter("fcCaps.weight");
  const auto children = golden.parameter_shape(gamma ? "fcCaps.weight" : "classCaps.weight");
  const auto classes = golden.parameter_shape("classCaps.weight");
  context.classes = classes[3];
  std::string options = fmt::format(
      "{{conv_channels: {}, conv_kernel: {}, primary_types: {}, primary_dim: {}, primary_kernel: "
      "{}, class_dim: {}",
      conv[0], conv[2], children[0], children[5], primary[2], classes[4]);
  if (!golden.text("config").empty()) {
    const auto config = nlohmann::json::parse(golden.text("config"));
    options += fmt::format(", conv_stride: {}, primary_stride: {}, routing: {{iterations: {}}}",
                           config.at("stride_conv1").get<int64_t>(),
                           config.at("stride_primaryCaps").get<int64_t>(),
                           config.at("num_routing_iterations").get<int64_t>());
  }
  if (golden.has_parameter("decoder.fc1.weight")) {
    options += fmt::format(", decoder: fc, decoder_hidden: [{}, {}]",
                           golden.parameter_shape("decoder.fc1.weight")[0],
                           golden.parameter_shape("decoder.fc2.weight")[0]);
    context.mean = {number_after(golden.text("note"), "mean")};
    context.std = {number_after(golden.text("note"), "std")};
  }
  return testing::make(gamma ? "gamma-capsnet" : "dr-capsnet", context, options + "}");
}

void set_parameters(const GoldenCase& golden, CapsNet& network) {
  const torch::NoGradGuard no_grad;
  const auto parameters = network.named_parameters();
  const auto names = golden.parameter_names();
  ASSERT_EQ(parameters.size(), names.size());
  for (const auto& name : names) {
    Tensor parameter = parameters[our_name(name)];
    ASSERT_EQ(parameter.numel(), golden.parameter(name).numel()) << name;
    parameter.copy_(golden.parameter(name).view_as(parameter));
  }
}

// Our couplings [B, I, J] in the layout of the file: [B, J, ...] in DR-CapsNet and gamma-CapsNet.
Tensor published_couplings(const CapsNet& network, const Forward& forward) {
  const Tensor coupling = forward.routings.back().coupling;
  return network.name() == "deepcaps" ? coupling : coupling.transpose(1, 2).contiguous();
}

// A coupling that sits on an edge may fall to either side. Few do, by one level each; then poses
// are compared loosely, as the files' README says.
double quantized_tolerance(const GoldenCase& golden, const Tensor& couplings, int64_t levels) {
  const Tensor reference = golden.load("q_couplings").flatten();
  const Tensor difference = (couplings.flatten() - reference).abs();
  const Tensor flipped = difference > 1e-4;
  const auto flips = flipped.sum().item<int64_t>();
  ::testing::Test::RecordProperty("flipped_couplings", std::to_string(flips));
  EXPECT_LE(flips, 1 + reference.numel() / 200);
  EXPECT_LE(difference.max().item<double>(), 1.0 / static_cast<double>(levels - 1) + 1e-4);
  return flips == 0 ? 1e-4 : 2e-2;
}

struct Case {
  const char* file;
  KernelPath kernels;
};

// Also the name CTest shows.
std::ostream& operator<<(std::ostream& out, const Case& value) {
  return out << value.file << (value.kernels == KernelPath::kFused ? "_fused" : "_reference");
}

class GoldenNetwork : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    golden_ = std::make_unique<GoldenCase>(GetParam().file);
    network_ = network_of(*golden_, GetParam().kernels);
    set_parameters(*golden_, *network_);
    network_->train(golden_->text("mode") != "eval");
  }
  std::unique_ptr<GoldenCase> golden_;
  std::shared_ptr<CapsNet> network_;
};

TEST_P(GoldenNetwork, ForwardLossAndGradientsEqualThePublishedOnes) {
  const Tensor images = golden_->input(), labels = golden_->load("labels");
  ForwardOptions options;
  options.trace = true;
  options.labels = labels;
  options.reconstruct = true;
  const Forward forward = network_->forward(images, options);
  golden_->expect_close("activations", forward.activations);
  if (golden_->contains("poses")) golden_->expect_close("poses", forward.poses);
  if (golden_->contains("couplings"))
    golden_->expect_close("couplings", published_couplings(*network_, forward));

  Tensor loss = margin_loss(forward.activations, labels);
  if (golden_->contains("reconstruction")) {
    golden_->expect_close("reconstruction", forward.reconstruction);
    loss = loss + 0.0005 * reconstruction_loss(forward.reconstruction, images);
  }
  golden_->expect_close("loss", loss);

  loss.backward();
  const auto parameters = network_->named_parameters();
  for (const auto& name : golden_->parameter_names()) {
    const Tensor gradient = parameters[our_name(name)].grad();
    // Batch norm in training mode cancels conv1's bias: what is left is rounding noise.
    if (golden_->text("mode") == "train" && name == "conv1.bias") {
      const double noise =
          (gradient.abs().max() / parameters["bn1.bias"].grad().abs().max()).item<double>();
      RecordProperty("conv1_bias_noise", fmt::format("{:.2e}", noise));
      EXPECT_LE(noise, 1e-4);
    } else {
      golden_->expect_gradient(name, gradient);
    }
  }
}

class GoldenQuantizedNetwork : public GoldenNetwork {};

TEST_P(GoldenQuantizedNetwork, QuantizedForwardEqualsThePublishedOne) {
  // Published: K = 11, but 6 in gamma-CapsNet's last stage; DeepCaps' 3-D routing is not quantized.
  ForwardOptions options;
  options.trace = true;
  int64_t levels = 11;
  options.quantizers = {Quantizer::uniform(levels)};
  if (network_->name() == "gamma-capsnet") {
    levels = 6;
    options.quantizers.push_back(Quantizer::uniform(levels));
  }
  if (network_->name() == "deepcaps")
    options.quantizers.insert(options.quantizers.begin(), std::nullopt);
  const torch::NoGradGuard no_grad;
  const Forward forward = network_->forward(golden_->input(), options);
  const double tolerance =
      quantized_tolerance(*golden_, published_couplings(*network_, forward), levels);
  golden_->expect_close("q_poses", forward.poses, tolerance);
  golden_->expect_close("q_activations", forward.activations, tolerance);
}

std::vector<Case> cases(bool with_decoder) {
  std::vector<Case> cases;
  for (const char* file : {"dr_small", "dr_rgb", "dr_mnist", "gamma_small", "gamma_mnist",
                           "deepcaps_train", "deepcaps_eval"})
    cases.push_back({file, KernelPath::kReference});
  for (const char* file :
       {"dr_small", "dr_rgb", "dr_mnist", "gamma_small", "deepcaps_train", "deepcaps_eval"})
    cases.push_back({file, KernelPath::kFused});
  if (with_decoder) cases.push_back({"decoder_small", KernelPath::kReference});
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return ::testing::PrintToString(info.param);
}

INSTANTIATE_TEST_SUITE_P(Published, GoldenNetwork, ::testing::ValuesIn(cases(true)), case_name);
INSTANTIATE_TEST_SUITE_P(Published, GoldenQuantizedNetwork, ::testing::ValuesIn(cases(false)),
                         case_name);

}  // namespace
}  // namespace remcaps
