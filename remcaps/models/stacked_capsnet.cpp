#include "remcaps/models/stacked_capsnet.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/decoder.h"
#include "remcaps/models/network_plan.h"

namespace remcaps {

StackedCapsNet::StackedCapsNet(const std::string& name, const ModelContext& context)
    : CapsNet(name, context.input, context.classes),
      context_(context),
      plan_(std::make_shared<NetworkPlan>(name, context.input)) {}

std::vector<LayerCost> StackedCapsNet::costs() const {
  return plan_->rows();
}

const FeatureMap& StackedCapsNet::feature_map() const {
  return plan_->map();
}

Convolution StackedCapsNet::add_conv(const std::string& layer, const ConvShape& shape,
                                     const std::string& then, int64_t kept) {
  prunable_.push_back(layer);
  return register_module(layer, Convolution(plan_->conv(layer, shape, then, kept)));
}

PrimaryCaps StackedCapsNet::add_primary(const std::string& layer, PrimaryCapsOptions options) {
  options.kernels(context_.kernels);
  plan_->primary_caps(layer, options);
  prunable_.push_back(layer);
  PrimaryCaps capsules = register_module(layer, PrimaryCaps(options));
  CapsuleGrid grid = capsules->grid(feature_map().height, feature_map().width);
  grid.field = feature_map().field;
  set_grids({grid});
  return capsules;
}

FcCaps StackedCapsNet::add_capsules(const std::string& layer, FcCapsOptions options) {
  options.routing(options.routing()->with_kernels(context_.kernels));
  plan_->fc_caps(layer, options);
  FcCaps capsules = register_module(layer, FcCaps(options));
  layer_names_.push_back(layer);
  layers_.push_back(capsules);
  routing_layers_.push_back({layer, options.children(), options.parents(),
                             options.routing()->iterations(), /*convolutional=*/false});
  const auto parameter = options.routing()->parameter(options.layer());
  prunable_.push_back(parameter && !parameter->prunable ? layer + ".weight" : layer);
  return capsules;
}

void StackedCapsNet::finish(const DecoderOptions& decoder_options) {
  add_decoder(decoder_options, layers_.back()->options.parent_dim(), context_);
  if (decoder() != nullptr) plan_->decoder(*decoder());
}

bool StackedCapsNet::images_are_independent() const {
  return std::none_of(layers_.begin(), layers_.end(), [](const FcCaps& layer) {
    return layer->options.routing()->batch_dependent();
  });
}

bool StackedCapsNet::divisible() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const FcCaps& layer) { return layer->options.routing()->divisible(); });
}

std::string StackedCapsNet::describe_children(NetworkGraph&) const {
  return "";
}

std::optional<NetworkGraph> StackedCapsNet::graph() const {
  NetworkGraph graph;
  graph.network = name();
  graph.channels = input().channels;
  graph.height = input().height;
  graph.width = input().width;
  std::string capsules = describe_children(graph);
  if (capsules.empty()) return std::nullopt;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const FcCapsOptions& options = layers_[i]->options;
    GraphNode node{"", layer_names_[i], {capsules}};
    node.numbers["shared_over"] = static_cast<double>(options.shared_over());
    node.tensors["weight"] = layer_names_[i] + ".weight";
    if (const auto parameter = options.routing()->parameter(options.layer()))
      node.tensors["bias"] = layer_names_[i] + "." + parameter->name;
    if (!options.routing()->describe(node)) return std::nullopt;
    capsules = graph.add(std::move(node));
  }
  graph.add({"lengths", "lengths", {capsules}, {{"epsilon", activation_epsilon_}}});
  return graph;
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
  // A routing layer in the backbone may be quantized too. Then the two passes share nothing.
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

}  // namespace remcaps
