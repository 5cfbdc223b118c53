// Networks made as a recipe makes them.
#pragma once

#include "remcaps/models/model.h"

namespace remcaps::testing {

/// `options` is YAML: "{primary_types: 4, routing: {iterations: 1}}".
inline std::shared_ptr<CapsNet> make(const std::string& name, const ModelContext& context,
                                     const std::string& options = "{}") {
  ConfigSection section(YAML::Load(options), "test", "model");
  return make_network(name, context, section);
}

inline ModelContext images(int64_t channels, int64_t height, int64_t width, int64_t classes = 10) {
  ModelContext context;
  context.input = {channels, height, width};
  context.classes = classes;
  return context;
}

inline Tensor random_images(const CapsNet& model, int64_t batch) {
  const ImageShape shape = model.input();
  return torch::randn({batch, shape.channels, shape.height, shape.width});
}

}  // namespace remcaps::testing
