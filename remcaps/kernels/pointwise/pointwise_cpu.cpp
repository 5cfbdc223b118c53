#include <algorithm>
#include <type_traits>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/pointwise/pointwise.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kCapsulesPerTask = 128;

// The first element of a capsule in the map.
const float* capsule_in(const CapsuleMap& shape, const float* map, int64_t capsule) {
  const int64_t place = capsule % shape.places, type = capsule / shape.places % shape.types;
  const int64_t image = capsule / shape.places / shape.types;
  return map + image * shape.batch_stride + type * shape.type_stride + place * shape.place_stride;
}

// Places whose lengths are computed together, in loops that the compiler can vectorize.
constexpr int64_t kPlaces = 256;

// Up to kPlaces places of one type: the first element of place p lies at offset + p * step.
struct Row {
  int64_t offset, count;
  int64_t first_capsule;  ///< its number
};

// Calls work(row, step) for all capsules. A step of 1 is a constant to the compiler.
template <typename Work>
void for_each_row(const CapsuleMap& shape, const Work& work) {
  const int64_t pieces = (shape.places + kPlaces - 1) / kPlaces;
  const int64_t grain = std::max<int64_t>(1, kCapsulesPerTask / std::min(shape.places, kPlaces));
  parallel_for(0, shape.batch * shape.types * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t first = at % pieces * kPlaces, type = at / pieces % shape.types;
      const int64_t image = at / pieces / shape.types;
      const Row row{
          image * shape.batch_stride + type * shape.type_stride + first * shape.place_stride,
          std::min(kPlaces, shape.places - first),
          (image * shape.types + type) * shape.places + first};
      if (shape.place_stride == 1)
        work(row, std::integral_constant<int64_t, 1>());
      else
        work(row, shape.place_stride);
    }
  });
}

// factors[p] <- squash_factor() of each place of a row that begins at `map`.
template <typename Step>
void squash_factors(const CapsuleMap& shape, const float* map, int64_t count, Step step,
                    float epsilon, float* factors) {
  std::fill_n(factors, count, 0.0F);
  for (int64_t d = 0; d < shape.dim; ++d) {
    const float* s = map + d * shape.dim_stride;
    for (int64_t p = 0; p < count; ++p) factors[p] += s[p * step] * s[p * step];
  }
  for (int64_t p = 0; p < count; ++p) factors[p] = squash_factor(factors[p], epsilon);
}

float squared_length(const CapsuleMap& shape, const float* s) {
  float n2 = 0;
  for (int64_t d = 0; d < shape.dim; ++d) n2 += s[d * shape.dim_stride] * s[d * shape.dim_stride];
  return n2;
}

}  // namespace

void squash_map(const CapsuleMap& shape, const float* map, float epsilon, float* capsules) {
  for_each_row(shape, [&](const Row& row, auto step) {
    float factor[kPlaces];
    squash_factors(shape, map + row.offset, row.count, step, epsilon, factor);
    float* out = capsules + row.first_capsule * shape.dim;
    for (int64_t p = 0; p < row.count; ++p)
      for (int64_t d = 0; d < shape.dim; ++d)
        *out++ = factor[p] * map[row.offset + d * shape.dim_stride + p * step];
  });
}

void squash_map_gradient(const CapsuleMap& shape, const float* map, const float* grad_capsules,
                         float epsilon, float* grad_map) {
  parallel_for(0, shape.capsules(), kCapsulesPerTask, [&](int64_t begin, int64_t end) {
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

void squash_channels(const CapsuleMap& shape, const float* map, float epsilon, float* squashed) {
  for_each_row(shape, [&](const Row& row, auto step) {
    float factor[kPlaces];
    squash_factors(shape, map + row.offset, row.count, step, epsilon, factor);
    for (int64_t d = 0; d < shape.dim; ++d) {
      const int64_t at = row.offset + d * shape.dim_stride;
      for (int64_t p = 0; p < row.count; ++p)
        squashed[at + p * step] = factor[p] * map[at + p * step];
    }
  });
}

void squash_channels_gradient(const CapsuleMap& shape, const float* map, const float* grad_squashed,
                              float epsilon, float* grad_map) {
  for_each_row(shape, [&](const Row& row, auto step) {
    const auto [offset, count, first_capsule] = row;
    float factor[kPlaces] = {}, pull[kPlaces] = {};
    for (int64_t d = 0; d < shape.dim; ++d) {
      const float *s = map + offset + d * shape.dim_stride, *grad = grad_squashed + (s - map);
      for (int64_t p = 0; p < count; ++p) {
        factor[p] += s[p * step] * s[p * step];
        pull[p] += grad[p * step] * s[p * step];
      }
    }
    for (int64_t p = 0; p < count; ++p) {
      const SquashSlopes slopes = squash_slopes(factor[p], epsilon);
      factor[p] = slopes.factor;
      pull[p] *= slopes.twice_slope;
    }
    for (int64_t d = 0; d < shape.dim; ++d) {
      const int64_t at = offset + d * shape.dim_stride;
      for (int64_t p = 0; p < count; ++p)
        grad_map[at + p * step] =
            factor[p] * grad_squashed[at + p * step] + pull[p] * map[at + p * step];
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
