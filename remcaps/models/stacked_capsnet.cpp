#include "remcaps/models/stacked_capsnet.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/decoder.h"

namespace remcaps {
namespace {

constexpr IntRange kIterations = {1, 16};

// Binds an enum whose values have the names given, in the order given.
template <typename Enum>
void bind_enum(ConfigSection& section, const std::string& key, Enum& value,
               const std::vector<std::string>& names) {
  std::string name = names.at(static_cast<size_t>(value));
  section.key(key, name, names);
  value = static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

template <typename Routing>
void bind_iterative(ConfigSection& section, Routing& routing) {
  section.key("iterations", routing.iterations, kIterations);
  bind_gradient(section, routing.gradient);
  bind_enum(section, "bias", routing.bias, {"none", "every", "last"});
}

void bind_keys(ConfigSection& section, DynamicRouting& routing) {
  bind_iterative(section, routing);
}

void bind_keys(ConfigSection& section, ScaledDistanceRouting& routing) {
  bind_iterative(section, routing);
  bind_enum(section, "mean", routing.mean, {"batch", "sample"});
}

void bind_keys(ConfigSection&, SelfAttentionRouting&) {}

RoutingOptions routing_by_name(const std::string& name) {
  if (name == "dynamic") return DynamicRouting{};
  if (name == "scaled-distance") return ScaledDistanceRouting{};
  return SelfAttentionRouting{};
}

}  // namespace

StackedCapsNet::StackedCapsNet(const std::string& name, const ModelContext& context)
    : CapsNet(name, context.input, context.classes),
      context_(context),
      plan_(name, context.input) {}

Convolution StackedCapsNet::add_conv(const std::string& layer, const ConvShape& shape,
                                     const std::string& then, int64_t kept) {
  prunable_.push_back(layer);
  return register_module(layer, Convolution(plan_.conv(layer, shape, then, kept)));
}

PrimaryCaps StackedCapsNet::add_primary(const std::string& layer, PrimaryCapsOptions options) {
  options.kernels(context_.kernels);
  plan_.primary_caps(layer, options);
  prunable_.push_back(layer);
  PrimaryCaps capsules = register_module(layer, PrimaryCaps(options));
  set_grids({capsules->grid(plan_.map().height, plan_.map().width)});
  return capsules;
}

FcCaps StackedCapsNet::add_capsules(const std::string& layer, FcCapsOptions options) {
  options.routing(with_kernels(options.routing(), context_.kernels));
  plan_.fc_caps(layer, options);
  FcCaps capsules = register_module(layer, FcCaps(options));
  layer_names_.push_back(layer);
  layers_.push_back(capsules);
  routing_layers_.push_back({layer, options.children(), options.parents(),
                             routing_iterations(options.routing()), /*convolutional=*/false});
  // A prior is a property of the couplings, not a weight: it is neither counted nor pruned.
  prunable_.push_back(capsules->prior.defined() ? layer + ".weight" : layer);
  return capsules;
}

void StackedCapsNet::finish(const DecoderOptions& decoder_options) {
  add_decoder(decoder_options, layers_.back()->options.parent_dim(), context_);
  if (decoder() != nullptr) plan_.decoder(*decoder());
}

bool StackedCapsNet::images_are_independent() const {
  return std::none_of(layers_.begin(), layers_.end(), [](const FcCaps& layer) {
    const auto* scaled = std::get_if<ScaledDistanceRouting>(&layer->options.routing());
    return scaled != nullptr && scaled->mean == ScaledDistanceRouting::Mean::kBatch;
  });
}

void StackedCapsNet::set_grids(std::vector<CapsuleGrid> grids) {
  grids_.clear();
  for (const auto& grid : grids)
    if (grid.height > 1 || grid.width > 1) grids_.push_back(grid);
}

void StackedCapsNet::check_images(const Tensor& images) const {
  check(images.dim() == 4 && images.size(1) == input().channels &&
            images.size(2) == input().height && images.size(3) == input().width,
        "{}: images [{}]; expected [B, {}, {}, {}]", name(), fmt::join(images.sizes(), ", "),
        input().channels, input().height, input().width);
}

Forward StackedCapsNet::forward(const Tensor& images, const ForwardOptions& options) {
  check_images(images);
  RoutingRecorder recorder(name(), options, routing_layers_.size());
  Tensor capsules = children(images, recorder);
  return route_up(std::move(capsules), recorder, options);
}

std::pair<Forward, Forward> StackedCapsNet::forward_both(const Tensor& images,
                                                         const ForwardOptions& first,
                                                         const ForwardOptions& second) {
  // A routing layer in the backbone quantizes its couplings too: nothing below can be shared then.
  if (routing_layers_.size() != layers_.size()) return CapsNet::forward_both(images, first, second);
  check_images(images);
  RoutingRecorder recorder(name(), first, routing_layers_.size());
  const Tensor capsules = children(images, recorder);
  Forward one = route_up(capsules, recorder, first);
  RoutingRecorder again(name(), second, routing_layers_.size());
  return {std::move(one), route_up(capsules, again, second)};
}

Forward StackedCapsNet::route_up(Tensor capsules, RoutingRecorder& recorder,
                                 const ForwardOptions& options) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const RoutingResult result = layers_[i]->forward(capsules, recorder.next());
    recorder.record(layer_names_[i], capsules, result,
                    i == 0 ? grids_ : std::vector<CapsuleGrid>{});
    capsules = result.poses;
  }
  Forward forward;
  forward.poses = capsules;
  forward.activations = safe_norm(capsules, -1, activation_epsilon_);
  forward.reconstruction = reconstruct(forward.poses, forward.activations, options);
  forward.routings = recorder.take();
  return forward;
}

void bind_gradient(ConfigSection& section, RoutingGradient& gradient) {
  bind_enum(section, "gradient", gradient, {"last", "full"});
}

void bind_routing(ConfigSection& section, RoutingOptions& routing) {
  ConfigSection keys = section.section("routing");
  std::string algorithm = routing_name(routing);
  keys.key("algorithm", algorithm, {"dynamic", "scaled-distance", "self-attention"});
  if (algorithm != routing_name(routing)) routing = routing_by_name(algorithm);
  std::visit([&keys](auto& options) { bind_keys(keys, options); }, routing);
  keys.finish();
  section.adopt("routing", keys);
}

void bind_routing(ConfigSection& section, const std::string& name, DynamicRouting& routing) {
  ConfigSection keys = section.section(name);
  bind_keys(keys, routing);
  keys.finish();
  section.adopt(name, keys);
}

RoutingOptions with_kernels(RoutingOptions routing, KernelPath kernels) {
  std::visit([kernels](auto& options) { options.kernels = kernels; }, routing);
  return routing;
}

}  // namespace remcaps
