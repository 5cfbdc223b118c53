#include "remcaps/models/model.h"

#include <map>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/capsule/decoder.h"
#include "remcaps/models/deepcaps.h"
#include "remcaps/models/dr_capsnet.h"
#include "remcaps/models/eff_capsnet.h"
#include "remcaps/models/eff_conv_capsnet.h"
#include "remcaps/models/multilayer_dr_capsnet.h"
#include "remcaps/models/network_plan.h"
#include "remcaps/models/resnet18_capsnet.h"
#include "remcaps/models/resnet18_classifier.h"

namespace remcaps {
namespace {

template <typename Network, typename Options>
NetworkFactory factory(Options defaults = {}) {
  return [defaults](const ModelContext& context, ConfigSection& section) {
    Options options = defaults;
    bind(section, options, context);
    return std::make_shared<Network>(context, options);
  };
}

// The built-in networks are listed here. Static initialisers in the networks' own files would not
// work: the linker drops them from a static library.
std::map<std::string, NetworkFactory>& network_registry() {
  static std::map<std::string, NetworkFactory> factories = {
      {"dr-capsnet", factory<DrCapsNet, DrCapsNetOptions>()},
      {"gamma-capsnet", factory<DrCapsNet>(DrCapsNetOptions::gamma())},
      {"deepcaps", factory<DeepCaps, DeepCapsOptions>()},
      {"eff-capsnet", factory<EffCapsNet, EffCapsNetOptions>()},
      {"eff-conv-capsnet", factory<EffConvCapsNet, EffConvCapsNetOptions>()},
      {"multilayer-dr-capsnet", factory<MultilayerDrCapsNet, MultilayerDrCapsNetOptions>()},
      {"resnet18-capsnet", factory<Resnet18CapsNet, Resnet18CapsNetOptions>()},
      {"resnet18", [](const ModelContext& context,
                      ConfigSection&) { return std::make_shared<Resnet18Classifier>(context); }},
  };
  return factories;
}

int64_t count(const std::vector<Tensor>& parameters, bool trained_only) {
  int64_t total = 0;
  for (const auto& parameter : parameters)
    if (parameter.requires_grad() || !trained_only) total += parameter.numel();
  return total;
}

}  // namespace

void bind(ConfigSection& section, DecoderOptions& options) {
  section.key("decoder", options.kind, {"none", "fc", "conv"});
  section.key("decoder_hidden", options.hidden, {1, 1 << 20});
}

std::pair<Forward, Forward> CapsNet::forward_both(const Tensor& images, const ForwardOptions& first,
                                                  const ForwardOptions& second) {
  return {forward(images, first), forward(images, second)};
}

Tensor CapsNet::decode(const Tensor& masked_poses) {
  check(decoder_ != nullptr, "{}: has no decoder (recipe key model.decoder)", name_);
  return decoder_->forward(masked_poses);
}

int64_t CapsNet::trainable_parameters() const {
  return count(parameters(), /*trained_only=*/true);
}

void CapsNet::require_routing() const {
  check(!routing_layers().empty(),
        "{} has no routing layer, and so no couplings and no parse trees", name_);
}

int64_t CapsNet::all_parameters() const {
  return count(parameters(), /*trained_only=*/false);
}

void CapsNet::add_decoder(const DecoderOptions& options, int64_t class_dim,
                          const ModelContext& context) {
  if (options.kind == DecoderOptions::Kind::kNone) return;
  DecoderShape shape;
  shape.classes = context.classes;
  shape.class_dim = class_dim;
  shape.channels = context.input.channels;
  shape.height = context.input.height;
  shape.width = context.input.width;
  shape.mean = context.mean;
  shape.std = context.std;
  if (options.kind == DecoderOptions::Kind::kFc) {
    int64_t inputs = shape.classes * shape.class_dim;
    for (const int64_t outputs : options.hidden) {
      WeightLimit::take(name_, "decoder", inputs * outputs);
      inputs = outputs;
    }
    WeightLimit::take(name_, "decoder", inputs * shape.channels * shape.height * shape.width);
    decoder_ = std::make_shared<FcDecoder>(shape, options.hidden);
  } else {
    decoder_ = std::make_shared<ConvDecoder>(shape);
  }
  register_module("decoder", decoder_);
}

Tensor CapsNet::reconstruct(const Tensor& poses, const Tensor& activations,
                            const ForwardOptions& options) {
  if (!options.reconstruct || !has_decoder()) return {};
  const Tensor classes = options.labels.defined() ? options.labels : activations.argmax(1);
  return decode(mask_poses(poses, classes));
}

std::shared_ptr<CapsNet> make_network(const std::string& name, const ModelContext& context,
                                      ConfigSection& section) {
  const auto found = network_registry().find(name);
  if (found == network_registry().end())
    throw UsageError(fmt::format("unknown network {}{}", name, suggestion(name, network_names())));
  check(context.classes >= 1, "{}: {} classes; expected at least 1", name, context.classes);
  check(context.input.channels >= 1 && context.input.height >= 1 && context.input.width >= 1,
        "{}: images of {}x{}x{} (channels, height, width)", name, context.input.channels,
        context.input.height, context.input.width);
  auto network = found->second(context, section);
  section.finish();
  return network;
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const auto& entry : network_registry()) names.push_back(entry.first);
  return names;
}

void register_network(const std::string& name, NetworkFactory factory) {
  network_registry()[name] = std::move(factory);
}

}  // namespace remcaps
