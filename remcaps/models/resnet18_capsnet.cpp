#include "remcaps/models/resnet18_capsnet.h"

#include "remcaps/models/graph_nodes.h"
#include "remcaps/models/network_plan.h"

namespace remcaps {

void bind(ConfigSection& section, Resnet18CapsNetOptions& options, const ModelContext&) {
  section.key("backbone_weights", options.backbone_weights);
  section.key("freeze", options.freeze);
  section.key("pad", options.pad, {0, 255});
  section.key("primary_types", options.primary_types, {1, 65536});
  section.key("primary_dim", options.primary_dim, {1, 1024});
  section.key("primary_kernel", options.primary_kernel, {1, 255});
  section.key("primary_stride", options.primary_stride, {1, 64});
  section.key("class_dim", options.class_dim, {1, 1024});
  bind_routing(section, options.routing);
  bind(section, options.decoder);
}

Resnet18CapsNet::Resnet18CapsNet(const ModelContext& context, const Resnet18CapsNetOptions& options)
    : StackedCapsNet("resnet18-capsnet", context), options_(options) {
  backbone_ =
      register_module("backbone", ResNet18(plan(), "backbone", !options.freeze, context.kernels));
  if (!options.backbone_weights.empty() && context.load_pretrained)
    backbone_->load(options.backbone_weights);
  // Published: the convolutions of the backbone count as prunable parameters, even if frozen.
  for (const auto& item : backbone_->named_parameters()) {
    if (options.freeze) item.value().set_requires_grad(false);
    if (item.value().dim() == 4) add_prunable("backbone." + item.key());
  }
  plan().pad(options.pad);
  primary_ = add_primary("primary", PrimaryCapsOptions(plan().map().channels, options.primary_types,
                                                       options.primary_kernel)
                                        .dim(options.primary_dim)
                                        .stride(options.primary_stride));
  const FeatureMap& map = plan().map();
  add_capsules("class",
               FcCapsOptions(options.primary_types * map.height * map.width, context.classes)
                   .child_dim(options.primary_dim)
                   .parent_dim(options.class_dim)
                   .routing(options.routing));
  finish(options.decoder);
  train();
}

void Resnet18CapsNet::train(bool on) {
  StackedCapsNet::train(on);
  if (options_.freeze) backbone_->eval();
}

std::string Resnet18CapsNet::describe_children(NetworkGraph& graph) const {
  // The zeros around the map are those that the convolution reads as padding.
  return add_primary_caps(graph, "primary", *primary_, backbone_->describe(graph, "backbone"),
                          options_.pad);
}

Tensor Resnet18CapsNet::children(const Tensor& images, RoutingRecorder&) {
  Tensor map;
  {
    torch::AutoGradMode backbone_mode(torch::GradMode::is_enabled() && !options_.freeze);
    map = torch::relu(backbone_->forward(images));
  }
  return primary_->forward(
      torch::constant_pad_nd(map, {options_.pad, options_.pad, options_.pad, options_.pad}));
}

}  // namespace remcaps
