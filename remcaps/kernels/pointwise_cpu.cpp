#include <ATen/Parallel.h>

#include "remcaps/kernels/pointwise_kernels.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kCapsulesPerTask = 2048;

// Where the elements of a capsule lie in the map.
const float* capsule_in(const CapsuleMap& shape, const float* map, int64_t capsule) {
  const int64_t place = capsule % shape.places, type = capsule / shape.places % shape.types;
  const int64_t image = capsule / shape.places / shape.types;
  return map + image * shape.batch_stride + type * shape.type_stride + place * shape.place_stride;
}

float squared_length(const CapsuleMap& shape, const float* s) {
  float n2 = 0;
  for (int64_t d = 0; d < shape.dim; ++d) n2 += s[d * shape.dim_stride] * s[d * shape.dim_stride];
  return n2;
}

}  // namespace

void squash_map(const CapsuleMap& shape, const float* map, float epsilon, float* capsules) {
  at::parallel_for(0, shape.capsules(), kCapsulesPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t capsule = begin; capsule < end; ++capsule) {
      const float* s = capsule_in(shape, map, capsule);
      const float factor = squash_factor(squared_length(shape, s), epsilon);
      float* out = capsules + capsule * shape.dim;
      for (int64_t d = 0; d < shape.dim; ++d) out[d] = factor * s[d * shape.dim_stride];
    }
  });
}

void squash_map_gradient(const CapsuleMap& shape, const float* map, const float* grad_capsules,
                         float epsilon, float* grad_map) {
  at::parallel_for(0, shape.capsules(), kCapsulesPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t capsule = begin; capsule < end; ++capsule) {
      const float* s = capsule_in(shape, map, capsule);
      const float* grad = grad_capsules + capsule * shape.dim;
      const float n2 = squared_length(shape, s);
      float along = 0;
      for (int64_t d = 0; d < shape.dim; ++d) along += grad[d] * s[d * shape.dim_stride];
      const float factor = squash_factor(n2, epsilon);
      const float pull = squash_twice_slope(n2, epsilon) * along;
      float* out = grad_map + (s - map);
      for (int64_t d = 0; d < shape.dim; ++d)
        out[d * shape.dim_stride] = factor * grad[d] + pull * s[d * shape.dim_stride];
    }
  });
}

void margin_loss(int64_t batch, int64_t classes, const float* activations, const int64_t* labels,
                 const Margins& margins, float* loss, float* gradient) {
  const float scale = 1.0F / static_cast<float>(batch);
  double total = 0;
  for (int64_t image = 0; image < batch; ++image)
    for (int64_t j = 0; j < classes; ++j) {
      const int64_t at = image * classes + j;
      float derivative = 0;
      total += margin_term(activations[at], labels[image] == j, margins, &derivative);
      gradient[at] = scale * derivative;
    }
  *loss = static_cast<float>(total * scale);
}

}  // namespace remcaps::kernels::cpu
