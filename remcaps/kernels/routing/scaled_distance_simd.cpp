#include "remcaps/kernels/routing/scaled_distance_simd.h"

#ifdef REMCAPS_HIGHWAY
#define HWY_DISABLED_TARGETS REMCAPS_DISABLED_TARGETS
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/scaled_distance_simd.cpp"
#include <hwy/foreach_target.h>
#endif

#include "remcaps/kernels/routing/clamped_vote_simd.h"
#include "remcaps/kernels/routing/couplings_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// ||pose - factor vote||
HWY_INLINE F distance(int64_t parent_dim, const float* pose, F factor, const float* vote) {
  F sum = zero();
  for (int64_t d = 0; d < parent_dim; ++d) {
    const F x = sub(load(pose + d * kLanes), mul(factor, load(vote + d * kLanes)));
    sum = fma(x, x, sum);
  }
  return sqrt(sum);
}

template <int64_t kDim>
void measure_distances_of(const ChildRange& range, const float* poses, float* distances,
                          float* totals, float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  float* vote = scratch;                  // [D_out, L]
  float* lengths = scratch + D * kLanes;  // ||v_j||, the distance of a vote of 0, [J, L]
  for (int64_t d = 0; d < D; ++d) store(zero(), vote + d * kLanes);
  for (int64_t j = 0; j < J; ++j)
    store(distance(D, poses + j * D * kLanes, zero(), vote), lengths + j * kLanes);
  F total = zero();
  for (int64_t i = range.begin; i < range.end; ++i) {
    const Pose<kDim> u = child_pose<kDim>(range, i);
    const F child2 = squared_length(u, dim);
    for (int64_t j = 0; j < J; ++j) {
      const int64_t pair = i * J + j;
      F apart = load(lengths + j * kLanes);
      if (range.alive[pair]) {
        const F factor = make_vote(range.weight + pair * D * dim, u, dim, D, child2, vote);
        apart = distance(D, poses + j * D * kLanes, factor, vote);
      }
      store(apart, distances + pair * kLanes);
      total = add(total, apart);
    }
  }
  store(total, totals);
}

// Out of the distances of one child's votes, [J, L], its couplings; the arrays may be one.
HWY_INLINE void couple(int64_t parents, F scale, const CouplingLevels& levels,
                       const float* distances, float* couplings) {
  F highest = set(-INFINITY);
  for (int64_t j = 0; j < parents; ++j) {
    const F logit = mul(scale, load(distances + j * kLanes));
    store(logit, couplings + j * kLanes);
    highest = max(highest, logit);
  }
  softmax_over_parents(parents, couplings, highest);
  if (levels.count == 0) return;
  for (int64_t j = 0; j < parents; ++j)
    store(quantized(load(couplings + j * kLanes), levels), couplings + j * kLanes);
}

template <int64_t kDim>
void sum_clamped_votes_of(const ChildRange& range, const DistanceCouplings& step, float* sums,
                          float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  float* vote = scratch;  // [D_out, L]
  for (int64_t x = 0; x < J * D; ++x) store(zero(), sums + x * kLanes);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const Pose<kDim> u = child_pose<kDim>(range, i);
    const F child2 = squared_length(u, dim);
    float* couplings = step.couplings == nullptr ? nullptr : step.couplings + i * J * kLanes;
    if (couplings != nullptr)
      couple(J, load(step.scales), step.levels, step.distances + i * J * kLanes, couplings);
    for (int64_t j = 0; j < J; ++j) {
      if (!range.alive[i * J + j]) continue;
      F factor = make_vote(range.weight + (i * J + j) * D * dim, u, dim, D, child2, vote);
      if (couplings != nullptr) factor = mul(factor, load(couplings + j * kLanes));
      float* sum = sums + j * D * kLanes;
      for (int64_t x = 0; x < D * kLanes; x += kLanes)
        store(fma(factor, load(vote + x), load(sum + x)), sum + x);
    }
  }
}

void measure_distances_any(const ChildRange& range, const float* poses, float* distances,
                           float* totals, float* scratch) {
  with_child_dim(range.shape, [&](auto dim) HWY_ATTR {
    measure_distances_of<dim()>(range, poses, distances, totals, scratch);
  });
}

void sum_clamped_votes_any(const ChildRange& range, const DistanceCouplings& step, float* sums,
                           float* scratch) {
  with_child_dim(range.shape, [&](auto dim) HWY_ATTR {
    sum_clamped_votes_of<dim()>(range, step, sums, scratch);
  });
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(measure_distances_any);
HWY_EXPORT(sum_clamped_votes_any);
#endif

int64_t distance_scratch_floats(const RoutingShape& shape) {
  return (shape.parent_dim + shape.parents) * image_lanes();
}

void measure_distances(const ChildRange& range, const float* poses, float* distances, float* totals,
                       float* scratch) {
  REMCAPS_DISPATCH(measure_distances_any)(range, poses, distances, totals, scratch);
}

void sum_clamped_votes(const ChildRange& range, const DistanceCouplings& step, float* sums,
                       float* scratch) {
  REMCAPS_DISPATCH(sum_clamped_votes_any)(range, step, sums, scratch);
}

}  // namespace remcaps::kernels
#endif
