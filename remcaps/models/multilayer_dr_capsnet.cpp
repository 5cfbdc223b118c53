#include "remcaps/models/multilayer_dr_capsnet.h"

#include "remcaps/base/error.h"

namespace remcaps {

void bind(ConfigSection& section, MultilayerDrCapsNetOptions& options, const ModelContext&) {
  bind(section, options.backbone);
  section.key("capsule_dim", options.capsule_dim, {1, 1024});
  section.key("hidden", options.hidden, {1, 65536});
  bind_routing(section, options.routing);
  bind(section, options.decoder);
}

MultilayerDrCapsNet::MultilayerDrCapsNet(const ModelContext& context,
                                         const MultilayerDrCapsNetOptions& options)
    : EffBackboneCapsNet("multilayer-dr-capsnet", context, options.backbone) {
  add_depthwise(/*kernel=*/0, /*stride=*/1, options.capsule_dim, options.routing->squash());
  int64_t children = primary_count();
  const auto add = [&](const std::string& layer, int64_t parents) {
    add_capsules(layer, FcCapsOptions(children, parents)
                            .child_dim(options.capsule_dim)
                            .parent_dim(options.capsule_dim)
                            .routing(options.routing));
    children = parents;
  };
  for (size_t i = 0; i < options.hidden.size(); ++i)
    add(fmt::format("hidden{}", i + 1), options.hidden[i]);
  add("class", context.classes);
  finish(options.decoder);
}

}  // namespace remcaps
