#include "remcaps/kernels/dynamic_routing_lanes.h"

#ifdef REMCAPS_HIGHWAY
#define HWY_DISABLED_TARGETS REMCAPS_DISABLED_TARGETS
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/dynamic_routing_lanes.cpp"
#include <hwy/foreach_target.h>
#endif

#include "remcaps/kernels/pose-inl.h"

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

// The level's value of each coupling.
HWY_INLINE F quantized(F coupling, const CouplingLevels& levels) {
  F value = set(levels.centres[0]);
  for (int64_t k = 1; k < levels.count; ++k)
    value = if_greater(coupling, set(levels.edges[k]), set(levels.centres[k]), value);
  return value;
}

// Turns the logits of one child into its couplings, in place.
HWY_INLINE void softmax_over_parents(int64_t parents, float* logits, F highest) {
  F total = zero();
  for (int64_t j = 0; j < parents; ++j) {
    const F e = exp(sub(load(logits + j * kLanes), highest));
    store(e, logits + j * kLanes);
    total = add(total, e);
  }
  const F scale = div(set(1.0F), total);
  for (int64_t j = 0; j < parents; ++j)
    store(mul(load(logits + j * kLanes), scale), logits + j * kLanes);
}

// Some components of a vote, kept in `votes`; returns the agreement so far.
template <int64_t kDim, int kCount>
HWY_INLINE F agree_rows(const float* rows, const Pose<kDim>& u, int64_t dim, const float* agreed,
                        float* votes, F agreement) {
  F sum[kCount];
  for (int r = 0; r < kCount; ++r) sum[r] = zero();
  add_votes(rows, u, dim, sum);
  for (int r = 0; r < kCount; ++r) {
    store(sum[r], votes + r * kLanes);
    agreement = fma(sum[r], load(agreed + r * kLanes), agreement);
  }
  return agreement;
}

// The vote u^_ij, kept in `votes`; returns u^_ij . agreed_j.
template <int64_t kDim>
HWY_INLINE F agree(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                   const float* agreed, float* votes) {
  F agreement = zero();
  int64_t d = 0;
  for (; d + kRows <= parent_dim; d += kRows)
    agreement = agree_rows<kDim, kRows>(w + d * dim, u, dim, agreed + d * kLanes,
                                        votes + d * kLanes, agreement);
  for (; d < parent_dim; ++d)
    agreement = agree_rows<kDim, 1>(w + d * dim, u, dim, agreed + d * kLanes, votes + d * kLanes,
                                    agreement);
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

// v = f(n2) s with f(n2) = n2 / ((1 + n2) sqrt(n2 + epsilon)) and n2 = ||s||^2.
HWY_INLINE void squash_parent(int64_t parent_dim, const float* sums, float epsilon, float* poses) {
  F n2 = zero();
  for (int64_t d = 0; d < parent_dim; ++d) {
    const F s = load(sums + d * kLanes);
    n2 = fma(s, s, n2);
  }
  const F factor = div(n2, mul(add(set(1.0F), n2), sqrt(add(n2, set(epsilon)))));
  for (int64_t d = 0; d < parent_dim; ++d)
    store(mul(factor, load(sums + d * kLanes)), poses + d * kLanes);
}

void squash_group_of(int64_t parents, int64_t parent_dim, const float* sums, float epsilon,
                     float* poses) {
  for (int64_t j = 0; j < parents; ++j) {
    const int64_t at = j * parent_dim * kLanes;
    squash_parent(parent_dim, sums + at, epsilon, poses + at);
  }
}

void squash_sums_of(const SquashStep& step) {
  for (int64_t j = 0; j < step.parents; ++j) {
    for (int64_t x = j * step.parent_dim; x < (j + 1) * step.parent_dim; ++x) {
      F sum = zero();
      for (int64_t chunk = 0; chunk < step.chunks; ++chunk)
        sum = add(sum, load(step.partial + chunk * step.stride + x * kLanes));
      sum = mul(sum, set(step.scale));
      if (step.bias != nullptr) sum = add(sum, set(step.bias[x]));
      store(sum, step.sums + x * kLanes);
    }
  }
  squash_group_of(step.parents, step.parent_dim, step.sums, step.epsilon, step.poses);
}

int64_t lanes_of() {
  return kLanes;
}

void sum_votes_any(const ChildRange& range, float* sums) {
  switch (range.shape.child_dim) {
    case 8:
      return sum_votes_of<8>(range, sums);
    case 16:
      return sum_votes_of<16>(range, sums);
    default:
      return sum_votes_of<0>(range, sums);
  }
}

void route_votes_any(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                     float* couplings, float* sums, float* scratch) {
  switch (range.shape.child_dim) {
    case 8:
      return route_votes_of<8>(range, agreed, levels, couplings, sums, scratch);
    case 16:
      return route_votes_of<16>(range, agreed, levels, couplings, sums, scratch);
    default:
      return route_votes_of<0>(range, agreed, levels, couplings, sums, scratch);
  }
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(lanes_of);
HWY_EXPORT(sum_votes_any);
HWY_EXPORT(route_votes_any);
HWY_EXPORT(squash_sums_of);
HWY_EXPORT(squash_group_of);
#endif

int64_t image_lanes() {
  return REMCAPS_DISPATCH(lanes_of)();
}

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

void squash_sums(const SquashStep& step) {
  REMCAPS_DISPATCH(squash_sums_of)(step);
}

void squash_group(int64_t parents, int64_t parent_dim, const float* sums, float epsilon,
                  float* poses) {
  REMCAPS_DISPATCH(squash_group_of)(parents, parent_dim, sums, epsilon, poses);
}

}  // namespace remcaps::kernels
#endif
