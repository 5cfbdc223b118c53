#include "remcaps/models/eff_capsnet.h"

#include "remcaps/capsule/init.h"

namespace remcaps {

EffCapsNetOptions EffCapsNetOptions::smallnorb() {
  return {.backbone = {.kernels = {7, 3, 3, 3},
                       .strides = {2, 1, 1, 2},
                       .activation = EffBackboneOptions::Activation::kLeakyRelu,
                       .norm = EffBackboneOptions::Norm::kInstance}};
}

void bind(ConfigSection& section, EffCapsNetOptions& options, const ModelContext& context) {
  std::string variant = "auto";
  section.key("variant", variant, {"auto", "mnist", "smallnorb"});
  if (variant == "smallnorb" || (variant == "auto" && context.input.channels == 2))
    options = EffCapsNetOptions::smallnorb();
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
  const Squash squash = options.routing->squash();
  add_depthwise(options.primary_kernel, options.primary_stride, options.primary_dim, squash);
  const int64_t children = primary_count();
  FcCaps capsules = add_capsules("class", FcCapsOptions(children, context.classes)
                                              .child_dim(options.primary_dim)
                                              .parent_dim(options.class_dim)
                                              .routing(options.routing));
  if (squash.form == Squash::Form::kExponential) {
    // As published with this squash. Keras' fan-in of W [J, I, Din, Dout] is the product of all
    // dimensions but the last.
    he_normal_(capsules->weight, context.classes * children * options.primary_dim);
    activation_epsilon_ = 1e-7;
  }
  finish(options.decoder);
}

}  // namespace remcaps
