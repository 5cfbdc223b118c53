#include "remcaps/models/dr_capsnet.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/models/graph_nodes.h"

namespace remcaps {

DrCapsNetOptions DrCapsNetOptions::gamma() {
  return {.name = "gamma-capsnet", .hidden = {32}, .routing = ScaledDistanceRouting{}};
}

void bind(ConfigSection& section, DrCapsNetOptions& options, const ModelContext&) {
  section.key("convs", options.convs, {1, 16});
  section.key("conv_channels", options.conv_channels, {1, 65536});
  section.key("conv_kernel", options.conv_kernel, {1, 255});
  section.key("conv_stride", options.conv_stride, {1, 64});
  section.key("primary_types", options.primary_types, {1, 65536});
  section.key("primary_dim", options.primary_dim, {1, 1024});
  section.key("primary_kernel", options.primary_kernel, {1, 255});
  section.key("primary_stride", options.primary_stride, {1, 64});
  section.key("padding", options.padding, {"valid", "same"});
  section.key("hidden", options.hidden, {1, 65536});
  section.key("hidden_dim", options.hidden_dim, {1, 1024});
  section.key("class_dim", options.class_dim, {1, 1024});
  bind_routing(section, options.routing);
  bind(section, options.decoder);
}

DrCapsNet::DrCapsNet(const ModelContext& context, const DrCapsNetOptions& options)
    : StackedCapsNet(options.name, context) {
  const auto margin = [&options](int64_t kernel) {
    return options.padding == DrCapsNetOptions::Padding::kSame ? (kernel - 1) / 2 : 0;
  };
  for (int64_t i = 1; i <= options.convs; ++i)
    convs_.push_back(add_conv(fmt::format("conv{}", i),
                              {.channels = options.conv_channels,
                               .kernel = options.conv_kernel,
                               .stride = options.conv_stride,
                               .padding = margin(options.conv_kernel)},
                              "ReLU"));
  primary_ = add_primary("primary", PrimaryCapsOptions(options.conv_channels, options.primary_types,
                                                       options.primary_kernel)
                                        .dim(options.primary_dim)
                                        .stride(options.primary_stride)
                                        .padding(margin(options.primary_kernel)));

  int64_t children = options.primary_types * feature_map().height * feature_map().width;
  int64_t child_dim = options.primary_dim;
  for (size_t i = 0; i < options.hidden.size(); ++i) {
    add_capsules(options.hidden.size() == 1 ? "hidden" : fmt::format("hidden{}", i + 1),
                 FcCapsOptions(children, options.hidden[i])
                     .child_dim(child_dim)
                     .parent_dim(options.hidden_dim)
                     .routing(options.routing));
    children = options.hidden[i];
    child_dim = options.hidden_dim;
  }
  add_capsules("class", FcCapsOptions(children, context.classes)
                            .child_dim(child_dim)
                            .parent_dim(options.class_dim)
                            .routing(options.routing));
  finish(options.decoder);
}

Tensor DrCapsNet::children(const Tensor& images, RoutingRecorder&) {
  Tensor map = images;
  for (auto& conv : convs_) map = convolve_relu(*conv, map, context().kernels);
  return primary_->forward(map);
}

std::string DrCapsNet::describe_children(NetworkGraph& graph) const {
  std::string map = kGraphInput;
  for (size_t i = 0; i < convs_.size(); ++i) {
    const std::string layer = fmt::format("conv{}", i + 1);
    map = add_relu(graph, layer + ".relu", add_convolution(graph, layer, *convs_[i], map));
  }
  return add_primary_caps(graph, "primary", *primary_, map);
}

}  // namespace remcaps
