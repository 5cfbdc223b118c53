#include "remcaps/models/eff_conv_capsnet.h"

#include "remcaps/capsule/routing/iterated.h"
#include "remcaps/models/graph_nodes.h"
#include "remcaps/models/network_plan.h"

namespace remcaps {

void bind(ConfigSection& section, EffConvCapsNetOptions& options, const ModelContext&) {
  bind(section, options.backbone);
  section.key("primary_kernel", options.primary_kernel, {1, 255});
  section.key("primary_dim", options.primary_dim, {1, 1024});
  section.key("conv_caps_types", options.conv_caps_types, {1, 65536});
  section.key("conv_caps_dim", options.conv_caps_dim, {1, 1024});
  section.key("conv_caps_kernel", options.conv_caps_kernel, {1, 255});
  section.key("conv_caps_stride", options.conv_caps_stride, {1, 64});
  section.key("class_dim", options.class_dim, {1, 1024});
  section.key("share", options.share, {"type", "all", "none"});
  ConfigSection routing = section.section("routing");
  bind(routing, options.routing);
  routing.finish();
  section.adopt("routing", routing);
  bind(section, options.decoder);
}

EffConvCapsNet::EffConvCapsNet(const ModelContext& context, const EffConvCapsNetOptions& options)
    : EffBackboneCapsNet("eff-conv-capsnet", context, options.backbone) {
  PrimaryCaps primary = add_depthwise(options.primary_kernel, /*stride=*/1, options.primary_dim,
                                      options.routing.squash);
  primary_grid_ = primary->grid(plan().map().height, plan().map().width);
  primary_grid_.field = plan().map().field;

  DynamicRouting routing = options.routing;
  routing.kernels = context.kernels;
  const auto conv_caps =
      ConvCapsOptions(primary_types(), options.conv_caps_types, options.conv_caps_kernel)
          .stride(options.conv_caps_stride)
          .child_dim(options.primary_dim)
          .parent_dim(options.conv_caps_dim)
          .routing(routing);
  plan().conv_caps("conv_caps", conv_caps);
  conv_caps_ = register_module("conv_caps", ConvCaps(conv_caps));
  add_prunable("conv_caps");
  announce({"conv_caps", conv_caps.places(), options.conv_caps_types, routing.iterations,
            /*convolutional=*/true});

  const int64_t height = plan().map().height, width = plan().map().width;
  CapsuleGrid grid = row_major_grid(options.conv_caps_types, height, width);
  grid.field = plan().map().field;
  set_grids({grid});
  const int64_t children = options.conv_caps_types * height * width;
  using Share = EffConvCapsNetOptions::Share;
  add_capsules("class", FcCapsOptions(children, context.classes)
                            .child_dim(options.conv_caps_dim)
                            .parent_dim(options.class_dim)
                            .shared_over(options.share == Share::kType  ? height * width
                                         : options.share == Share::kAll ? children
                                                                        : 1)
                            .routing(routing));
  finish(options.decoder);
}

std::string EffConvCapsNet::describe_children(NetworkGraph& graph) const {
  const std::string primary = EffBackboneCapsNet::describe_children(graph);
  const ConvCapsOptions& options = conv_caps_->options;
  GraphNode node{"", "conv_caps", {primary}};
  if (!describe_iterated(options.routing(), "window_routing", node)) return "";
  node.numbers.insert({{"types", primary_grid_.types},
                       {"height", primary_grid_.height},
                       {"width", primary_grid_.width},
                       {"kernel", options.kernel()},
                       {"stride", options.stride()}});
  node.tensors["weight"] = "conv_caps.weight";
  if (conv_caps_->bias.defined()) node.tensors["bias"] = "conv_caps.bias";
  return graph.add(std::move(node));
}

Tensor EffConvCapsNet::children(const Tensor& images, RoutingRecorder& recorder) {
  const Tensor primary = EffBackboneCapsNet::children(images, recorder);
  const CapsuleGrid& grid = primary_grid_;
  const RoutingResult result =
      conv_caps_->forward(primary, grid.height, grid.width, recorder.next());
  if (recorder.tracing())
    recorder.record("conv_caps", primary, result, {grid},
                    window_map(grid.types, grid.height, grid.width, conv_caps_->options.kernel(),
                               conv_caps_->options.stride()));
  return ConvCapsImpl::as_children(result.poses);
}

}  // namespace remcaps
