#include "remcaps/kernels/routing/steps.h"

#include <algorithm>

namespace remcaps::kernels::cpu {
namespace {

// Transposes between [B, X] and [groups, X, L] go tile by tile. A tile stays in the first-level
// cache, and each image is read or written in runs. Rows of all images at once would share cache
// sets.
constexpr int64_t kTile = 64;

template <typename Move>
void for_each_tile(const Cut& cut, int64_t batch, int64_t size, const Move& move) {
  const int64_t tiles = (size + kTile - 1) / kTile;
  parallel_for(0, cut.groups * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task / tiles, first = task % tiles * kTile;
      move(group, first, std::min(kTile, size - first),
           std::min(cut.lanes, batch - group * cut.lanes));
    }
  });
}

std::vector<uint8_t> alive_blocks(const RoutingShape& shape, const float* weight) {
  const int64_t block = shape.parent_dim * shape.child_dim;
  std::vector<uint8_t> alive(shape.children * shape.parents);
  for (size_t ij = 0; ij < alive.size(); ++ij) {
    const float* w = weight + ij * block;
    alive[ij] = std::any_of(w, w + block, [](float x) { return x != 0; });
  }
  return alive;
}

}  // namespace

void to_groups(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to) {
  for_each_tile(cut, batch, size, [&](int64_t group, int64_t first, int64_t count, int64_t images) {
    float* tile = to + (group * size + first) * cut.lanes;
    for (int64_t image = 0; image < images; ++image) {
      const float* row = from + (group * cut.lanes + image) * size + first;
      for (int64_t x = 0; x < count; ++x) tile[x * cut.lanes + image] = row[x];
    }
    for (int64_t image = images; image < cut.lanes; ++image)
      for (int64_t x = 0; x < count; ++x) tile[x * cut.lanes + image] = 0;
  });
}

void from_groups(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to) {
  for_each_tile(cut, batch, size, [&](int64_t group, int64_t first, int64_t count, int64_t images) {
    const float* tile = from + (group * size + first) * cut.lanes;
    for (int64_t image = 0; image < images; ++image) {
      float* row = to + (group * cut.lanes + image) * size + first;
      for (int64_t x = 0; x < count; ++x) row[x] = tile[x * cut.lanes + image];
    }
  });
}

Problem::Problem(const RoutingShape& shape_, const float* children_, const float* weight_)
    : shape(shape_),
      cut(shape),
      weight(weight_),
      alive(alive_blocks(shape, weight)),
      children(cut.groups * cut.child_floats) {
  to_groups(cut, shape.batch, shape.children * shape.child_dim, children_, children.get());
}

simd::ChildRange Problem::range(int64_t chunk, int64_t group) const {
  return {.shape = shape,
          .begin = chunk * cut.chunk,
          .end = std::min(shape.children, (chunk + 1) * cut.chunk),
          .weight = weight,
          .alive = alive.data(),
          .children = children.get() + group * cut.child_floats};
}

void squash_partial(const Problem& problem, const RoutingRule& rule, int64_t iteration,
                    const float* bias, const float* partial, float* sums, float* poses) {
  const Cut& cut = problem.cut;
  const bool has_bias = rule.bias_every_iteration || iteration == rule.iterations - 1;
  parallel_for(0, cut.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t at = group * cut.pose_floats;
      simd::squash_sums({.parents = problem.shape.parents,
                         .parent_dim = problem.shape.parent_dim,
                         .partial = partial + at,
                         .chunks = cut.chunks,
                         .stride = cut.groups * cut.pose_floats,
                         .scale = iteration == 0 ? rule.first_coupling : 1.0F,
                         .epsilon = rule.epsilon,
                         .bias = has_bias ? bias : nullptr,
                         .sums = sums + at,
                         .poses = poses + at});
    }
  });
}

void give_couplings(const Problem& problem, const RoutingRule& rule, const float* from,
                    float* couplings) {
  const int64_t batch = problem.shape.batch;
  const int64_t pairs = problem.shape.children * problem.shape.parents;
  if (from == nullptr)
    std::fill_n(couplings, batch * pairs, rule.first_coupling);
  else
    from_groups(problem.cut, batch, pairs, from, couplings);
}

void squash_gradients(const Problem& problem, const RoutingRule& rule, const float* sums,
                      const float* grad_poses, float* grad_sums) {
  const Cut& cut = problem.cut;
  for (int64_t at = 0; at < cut.groups * cut.pose_floats; at += cut.pose_floats)
    simd::squash_gradient(problem.shape.parents, problem.shape.parent_dim, sums + at,
                          grad_poses + at, rule.epsilon, grad_sums + at);
}

void add_bias_gradient(const Problem& problem, const float* grad_sums, float* grad_bias) {
  const Cut& cut = problem.cut;
  // Lanes beyond the batch hold zero gradients.
  for (int64_t group = 0; group < cut.groups; ++group)
    for (int64_t x = 0; x < problem.shape.pose_size(); ++x) {
      const float* lanes = grad_sums + group * cut.pose_floats + x * cut.lanes;
      float sum = 0;
      for (int64_t image = 0; image < cut.lanes; ++image) sum += lanes[image];
      grad_bias[x] += sum;
    }
}

}  // namespace remcaps::kernels::cpu
