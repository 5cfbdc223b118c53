#include "remcaps/kernels/routing/dynamic_routing_simd.h"

#ifdef REMCAPS_HIGHWAY
#define HWY_DISABLED_TARGETS REMCAPS_DISABLED_TARGETS
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/dynamic_routing_simd.cpp"
#include <hwy/foreach_target.h>
#endif

#include "remcaps/kernels/routing/couplings_simd.h"
#include "remcaps/kernels/routing/pose_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

template <int64_t kDim>
void sum_votes_of(const ChildRange& range, float* sums) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  for (int64_t x = 0; x < J * D; ++x) store(zero(), sums + x * kLanes);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const Pose<kDim> u = child_pose<kDim>(range, i);
    for (int64_t j = 0; j < J; ++j)
      if (range.alive[i * J + j])
        accumulate_vote(range.weight + (i * J + j) * D * dim, u, dim, D, set(1.0F),
                        sums + j * D * kLanes);
  }
}

// The vote u^_ij, kept in `votes`; returns u^_ij . agreed_j.
template <int64_t kDim>
HWY_INLINE F agree(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                   const float* agreed, float* votes) {
  F agreement = zero();
  for_each_component(w, u, dim, parent_dim, [&](int64_t d, F x) HWY_ATTR {
    store(x, votes + d * kLanes);
    agreement = fma(x, load(agreed + d * kLanes), agreement);
  });
  return agreement;
}

template <int64_t kDim>
void route_votes_of(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                    float* couplings, float* sums, float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  float* votes = scratch;                    // [J, D_out, L]
  float* logits = scratch + J * D * kLanes;  // [J, L]
  for (int64_t x = 0; x < J * D; ++x) store(zero(), sums + x * kLanes);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const Pose<kDim> u = child_pose<kDim>(range, i);
    const uint8_t* alive = range.alive + i * J;
    F highest = set(-INFINITY);
    for (int64_t j = 0; j < J; ++j) {
      const int64_t at = j * D * kLanes;
      const F agreement =
          alive[j] ? agree(range.weight + (i * J + j) * D * dim, u, dim, D, agreed + at, votes + at)
                   : zero();
      store(agreement, logits + j * kLanes);
      highest = max(highest, agreement);
    }
    softmax_over_parents(J, logits, highest);
    for (int64_t j = 0; j < J; ++j) {
      F c = load(logits + j * kLanes);
      if (levels.count > 0) c = quantized(c, levels);
      if (couplings != nullptr) store(c, couplings + (i * J + j) * kLanes);
      if (!alive[j]) continue;
      for (int64_t x = j * D; x < (j + 1) * D; ++x) {
        float* s = sums + x * kLanes;
        store(fma(c, load(votes + x * kLanes), load(s)), s);
      }
    }
  }
}

void sum_votes_any(const ChildRange& range, float* sums) {
  with_child_dim(range.shape, [&](auto dim) HWY_ATTR { sum_votes_of<dim()>(range, sums); });
}

void route_votes_any(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                     float* couplings, float* sums, float* scratch) {
  with_child_dim(range.shape, [&](auto dim) HWY_ATTR {
    route_votes_of<dim()>(range, agreed, levels, couplings, sums, scratch);
  });
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(sum_votes_any);
HWY_EXPORT(route_votes_any);
#endif

int64_t lane_scratch_floats(const RoutingShape& shape) {
  return (shape.pose_size() + shape.parents + shape.parent_dim + 2 * shape.child_dim) *
         image_lanes();
}

void sum_votes(const ChildRange& range, float* sums) {
  REMCAPS_DISPATCH(sum_votes_any)(range, sums);
}

void route_votes(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                 float* couplings, float* sums, float* scratch) {
  REMCAPS_DISPATCH(route_votes_any)(range, agreed, levels, couplings, sums, scratch);
}

}  // namespace remcaps::kernels
#endif
