#include "remcaps/network.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/runs/load.h"
#include "remcaps/torch/runtime.h"

namespace remcaps {

struct Network::State {
  LoadedRun run;
};

namespace {

// lengths: [J]
Classification classification(const LoadedRun& run, const torch::Tensor& lengths) {
  const torch::Tensor host = lengths.to(torch::kCPU, torch::kFloat64).contiguous();
  Classification answer;
  answer.class_index = host.argmax().item<int64_t>();
  answer.class_name = run.class_name(answer.class_index);
  answer.lengths.assign(host.data_ptr<double>(), host.data_ptr<double>() + host.numel());
  answer.length = answer.lengths[static_cast<size_t>(answer.class_index)];
  return answer;
}

}  // namespace

Network::Network(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Network Network::load(const std::string& name, const std::string& device) {
  auto state = std::make_shared<State>();
  state->run = load_run(name, parse_device(device));
  state->run.compute_in("float32");
  return Network(std::move(state));
}

const std::string& Network::architecture() const {
  return model().name();
}

const std::vector<std::string>& Network::class_names() const {
  return state_->run.class_names;
}

ImageShape Network::input() const {
  return model().input();
}

torch::Tensor Network::read(const std::filesystem::path& picture, bool invert) const {
  return state_->run.read_input(picture, invert);
}

torch::Tensor Network::prepare(const torch::Tensor& pixels) const {
  return prepare_images(pixels.to(state_->run.device), state_->run.recipe.dataset.augment);
}

std::vector<Classification> Network::classify(const torch::Tensor& images) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor lengths =
      model().forward(images.to(state_->run.device)).activations;  // [B, J]
  std::vector<Classification> answers;
  for (int64_t image = 0; image < lengths.size(0); ++image)
    answers.push_back(classification(state_->run, lengths[image]));
  return answers;
}

Classification Network::classify(const std::filesystem::path& picture) const {
  return classify(read(picture)).front();
}

Explanation Network::explain(const torch::Tensor& image, std::optional<int64_t> levels) const {
  const torch::NoGradGuard no_grad;
  const LoadedRun& run = state_->run;
  run.model->require_routing();
  check(image.dim() == 4 && image.size(0) == 1, "explain: images [{}]; expected [1, C, H, W]",
        fmt::join(image.sizes(), ", "));
  ForwardOptions quantized;
  quantized.trace = true;
  quantized.contributions = true;
  QuantizeOptions quantize = run.recipe.quantize;
  if (levels) quantize.levels = {*levels};
  quantized.quantizers = quantize.quantizers(model().routing_layers().size());
  const auto [plain, forward] = model().forward_both(image.to(run.device), {}, quantized);

  Explanation explanation;
  explanation.unquantized = classification(run, plain.activations[0]);
  explanation.answer = classification(run, forward.activations[0]);
  const std::vector<RoutingTrace>& routings = forward.routings;
  explanation.couplings = routings.back().coupling[0].cpu();
  const torch::Tensor classes = predicted_classes(forward);
  if (std::any_of(routings.begin(), routings.end(), has_place)) {
    const size_t layer = saliency_layer(routings, model().name());
    explanation.saliency = saliency(routings, layer, classes, model().input()).map[0].cpu();
    explanation.contribution_map = evidence_map(routings, layer, classes, model().input())
                                       .net()[0]
                                       .to(torch::kCPU, torch::kFloat);
  }
  const Evidence evidence = evidence_for(routings, first_chained_layer(routings), classes);
  const EffectiveParts parts = effective_parts(evidence.children);
  explanation.evidence = evidence.total()[0].item<double>();
  explanation.contributions = evidence.children[0].to(torch::kCPU, torch::kFloat);
  explanation.bias_contribution = evidence.bias[0].item<double>();
  explanation.parts_half = parts.half[0].item<int64_t>();
  explanation.parts_spread = parts.spread[0].item<double>();
  if (!routings.back().convolutional()) {
    const CapsuleLayers layers = capsule_layers(forward, 0);
    explanation.tree = parse_tree(layers, {explanation.answer.class_index});
    explanation.contribution_tree =
        parse_tree(layers, {explanation.answer.class_index}, {.of = TreeOf::kContributions});
  }
  return explanation;
}

Explanation Network::explain(const std::filesystem::path& picture) const {
  return explain(read(picture));
}

CapsNet& Network::model() const {
  return *state_->run.model;
}

const LoadedRun& Network::run() const {
  return state_->run;
}

}  // namespace remcaps
