#include "remcaps/models/eff_capsnet.h"

#include "remcaps/capsule/init.h"

namespace remcaps {
namespace {

void set_variant(EffCapsNetOptions& options, const ModelContext& context) {
  if (options.variant == "auto")
    options.variant = context.input.channels == 2 ? "smallnorb" : "mnist";
  if (options.variant == "smallnorb") {
    options.backbone.kernels = {7, 3, 3, 3};
    options.backbone.strides = {2, 1, 1, 2};
    options.backbone.activation = "leaky-relu";
    options.backbone.norm = "instance";
  } else if (options.variant == "multimnist") {
    options.backbone.strides = {1, 1, 2, 2};
    options.primary_kernel = 5;
    options.primary_stride = 2;
  }
}

}  // namespace

void bind(ConfigSection& section, EffCapsNetOptions& options, const ModelContext& context) {
  section.key("variant", options.variant, {"auto", "mnist", "smallnorb", "multimnist"});
  set_variant(options, context);
  bind(section, options.backbone);
  section.key("primary_kernel", options.primary_kernel, {0, 255});
  section.key("primary_stride", options.primary_stride, {1, 64});
  section.key("primary_dim", options.primary_dim, {1, 1024});
  section.key("class_dim", options.class_dim, {1, 1024});
  bind_routing(section, options.routing);
  bind(section, options.decoder);
}

EffCapsNet::EffCapsNet(const ModelContext& context, const EffCapsNetOptions& options)
    : EffBackboneCapsNet("eff-capsnet", context, options.backbone) {
  const bool attends = std::holds_alternative<SelfAttentionRouting>(options.routing);
  // Capsules are squashed as the routing squashes its parents.
  const Squash squash =
      std::visit([](const auto& routing) { return routing.squash; }, options.routing);
  add_depthwise(options.primary_kernel, options.primary_stride, options.primary_dim, squash);
  const int64_t children = primary_count();
  FcCaps capsules = add_capsules("class", FcCapsOptions(children, context.classes)
                                              .child_dim(options.primary_dim)
                                              .parent_dim(options.class_dim)
                                              .routing(options.routing));
  if (attends) {
    // Keras' fan-in of W [J, I, Din, Dout]: all but its last dimension.
    he_normal_(capsules->weight, context.classes * children * options.primary_dim);
    activation_epsilon_ = 1e-7;
  }
  finish(options.decoder);
}

}  // namespace remcaps
