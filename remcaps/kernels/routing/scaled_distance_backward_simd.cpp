#include "remcaps/kernels/routing/scaled_distance_simd.h"

#ifdef REMCAPS_HIGHWAY
#define HWY_DISABLED_TARGETS REMCAPS_DISABLED_TARGETS
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/scaled_distance_backward_simd.cpp"
#include <hwy/foreach_target.h>
#endif

#include "remcaps/kernels/routing/clamped_vote_simd.h"
#include "remcaps/kernels/routing/gradient_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// 1 / distance; 0 where a vote is its pose and has no direction to it, as torch has it.
HWY_INLINE F inverse_distance(F distance) {
  return if_greater(distance, zero(), div(set(1.0F), distance), zero());
}

// The vote u'_ij, left in `vote`, [D_out, L]; returns <u'_ij, dL/ds_j>, which is dL/dc_ij.
template <int64_t kDim>
HWY_INLINE F coupling_gradient(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                               F child2, const float* grad_sum, float* vote) {
  const F factor = make_vote(w, u, dim, parent_dim, child2, vote);
  F along = zero();
  for (int64_t x = 0; x < parent_dim * kLanes; x += kLanes) {
    const F clamped = mul(factor, load(vote + x));
    store(clamped, vote + x);
    along = fma(clamped, load(grad_sum + x), along);
  }
  return along;
}

// by_logits += grad_logit / distance (pose - vote), and by_mean the same without the logit.
HWY_INLINE void add_directions(int64_t parent_dim, const float* pose, const float* vote,
                               F grad_logit, F distance, float* by_logits, float* by_mean) {
  const F inverse = inverse_distance(distance);
  const F pull = mul(grad_logit, inverse);
  for (int64_t x = 0; x < parent_dim * kLanes; x += kLanes) {
    const F apart = sub(load(pose + x), load(vote + x));
    store(fma(pull, apart, load(by_logits + x)), by_logits + x);
    store(fma(inverse, apart, load(by_mean + x)), by_mean + x);
  }
}

template <int64_t kDim>
void distance_gradient_of(const ChildRange& range, const DistanceGradientStep& step,
                          float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  float* votes = scratch;                     // u'_ij of one child, [J, D_out, L]
  float* no_vote = scratch + J * D * kLanes;  // [D_out, L]
  for (int64_t d = 0; d < D; ++d) store(zero(), no_vote + d * kLanes);
  for (int64_t x = 0; x < J * D; ++x) {
    store(zero(), step.by_logits + x * kLanes);
    store(zero(), step.by_mean + x * kLanes);
  }
  F total = zero();
  for (int64_t i = range.begin; i < range.end; ++i) {
    const Pose<kDim> u = child_pose<kDim>(range, i);
    const F child2 = squared_length(u, dim);
    const int64_t row = i * J * kLanes;
    const uint8_t* alive = range.alive + i * J;
    F mean = zero();
    for (int64_t j = 0; j < J; ++j) {
      const int64_t at = j * D * kLanes;
      const F grad_coupling = alive[j]
                                  ? coupling_gradient(range.weight + (i * J + j) * D * dim, u, dim,
                                                      D, child2, step.grad_sums + at, votes + at)
                                  : zero();
      store(grad_coupling, step.grad_logits + row + j * kLanes);
      mean = fma(load(step.couplings + row + j * kLanes), grad_coupling, mean);
    }
    for (int64_t j = 0; j < J; ++j) {
      const int64_t pair = row + j * kLanes, at = j * D * kLanes;
      const F distance = load(step.distances + pair);
      const F grad_logit =
          mul(load(step.couplings + pair), sub(load(step.grad_logits + pair), mean));
      store(grad_logit, step.grad_logits + pair);
      total = fma(grad_logit, distance, total);
      add_directions(D, step.poses + at, alive[j] ? votes + at : no_vote, grad_logit, distance,
                     step.by_logits + at, step.by_mean + at);
    }
  }
  store(total, step.totals);
}

// dL/du'_ij = x_j + pull u'_ij, the second term of which is only in the full gradient.
struct ClampedVoteGradient {
  F factor;        ///< of `x`
  const float* x;  ///< [D_out, L]
  F pull;
};

// Back through the clamp: where that shortens, what lies along the vote goes to the child's length
// instead,
//   dL/du^_ij = f (x - a u^_ij), a = <u^_ij, x> / ||u^_ij||^2; where f = 1: x + pull u^_ij
//   ||u_i|| dL/d||u_i|| = sum_j (f <u^_ij, x> + pull ||u_i||^2)
// Leaves the first in `grad_vote`, [D_out, L]; returns the term of the second.
template <int64_t kDim>
HWY_INLINE F vote_gradient(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                           F child2, const ClampedVoteGradient& from, float* grad_vote) {
  F vote2 = zero(), along = zero();
  for_each_component(w, u, dim, parent_dim, [&](int64_t d, F x) HWY_ATTR {
    store(x, grad_vote + d * kLanes);
    vote2 = fma(x, x, vote2);
    along = fma(x, load(from.x + d * kLanes), along);
  });
  const F factor = mul(from.factor, clamp_factors(vote2, child2));
  const F moved = mul(factor, along);
  const F vote_factor = if_greater(vote2, child2, div(moved, vote2), sub(zero(), from.pull));
  for (int64_t x = 0; x < parent_dim * kLanes; x += kLanes)
    store(sub(mul(factor, load(from.x + x)), mul(vote_factor, load(grad_vote + x))), grad_vote + x);
  return if_greater(vote2, child2, fma(from.pull, child2, moved), zero());
}

// Adds an iteration's part of the gradient of the vote `pair`, i J + j, to `x`, [D_out, L], but for
// that along the vote itself, whose factor it returns.
HWY_INLINE F add_term(const GroupGradients& from, const DistanceTerm& term, int64_t group,
                      int64_t pair, int64_t pose_at, int64_t parent_dim, float* x) {
  const int64_t at = group * from.couplings_stride + pair * kLanes;
  const F c = load(term.couplings + at);
  const F grad_distance = fma(load(term.scales + group * kLanes), load(term.grad_logits + at),
                              load(term.grad_means + group * kLanes));
  const F pull = mul(grad_distance, inverse_distance(load(term.distances + at)));
  const float* grad_sum = term.grad_sums + group * from.sums_stride + pose_at;
  const float* pose = term.poses + group * from.sums_stride + pose_at;
  for (int64_t d = 0; d < parent_dim * kLanes; d += kLanes)
    store(fma(c, load(grad_sum + d), sub(load(x + d), mul(pull, load(pose + d)))), x + d);
  return pull;
}

// dL/du'_ij. One term is taken where it lies, several are added up in `sum`, [D_out, L].
HWY_INLINE ClampedVoteGradient clamped_vote_gradient(const ClampedGradientStep& step, int64_t group,
                                                     int64_t pair, int64_t pose_at,
                                                     int64_t parent_dim, float* sum) {
  const GroupGradients& from = step.from;
  const F c = coupling_of(from, group, pair);
  const float* grad_sum = from.grad_sums + group * from.sums_stride + pose_at;
  if (step.later_count == 0) return {c, grad_sum, zero()};
  for (int64_t d = 0; d < parent_dim * kLanes; d += kLanes)
    store(mul(c, load(grad_sum + d)), sum + d);
  F pull = zero();
  for (int64_t t = 0; t < step.later_count; ++t)
    pull = add(pull, add_term(from, step.later[t], group, pair, pose_at, parent_dim, sum));
  return {set(1.0F), sum, pull};
}

// One child in one group: dL/du^_ij of all its votes, [J, D_out, L], and dL/du_i, [D_in, L].
template <int64_t kDim>
HWY_INLINE void child_gradient(const ChildRange& range, const ClampedGradientStep& step,
                               int64_t group, int64_t i, float* sum, float* grad_votes) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  const int64_t at = group * step.from.children_stride + i * dim * kLanes;
  const Pose<kDim> u = pose_at<kDim>(range.children + at);
  const F child2 = squared_length(u, dim);
  F grad_length = zero();  // times the child's length
  Pose<kDim> grad(step.grad_children + at);
  for (int64_t k = 0; k < dim; ++k) grad.put(k, zero());
  for (int64_t j = 0; j < J; ++j) {
    const int64_t pair = i * J + j;
    const float* w = range.weight + pair * D * dim;
    float* grad_vote = grad_votes + j * D * kLanes;
    const ClampedVoteGradient from =
        clamped_vote_gradient(step, group, pair, j * D * kLanes, D, sum);
    if (!range.alive[pair]) {  // the clamp leaves a vote of 0 alone
      for (int64_t x = 0; x < D * kLanes; x += kLanes)
        store(mul(from.factor, load(from.x + x)), grad_vote + x);
      continue;
    }
    grad_length = add(grad_length, vote_gradient(w, u, dim, D, child2, from, grad_vote));
    add_transposed(w, D, grad_vote, dim, grad);
  }
  // The length's gradient points along the child; a child of length 0 has none.
  const F stretch = if_greater(child2, zero(), div(grad_length, child2), zero());
  for (int64_t k = 0; k < dim; ++k)
    store(fma(stretch, u.get(k), grad.get(k)), step.grad_children + at + k * kLanes);
}

template <int64_t kDim>
void clamped_gradient_of(const ChildRange& range, const ClampedGradientStep& step, float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t groups = step.from.groups, J = shape.parents, D = shape.parent_dim;
  float* grad_votes = scratch;                     // [groups, J, D_out, L]
  float* sum = scratch + groups * J * D * kLanes;  // [D_out, L]
  float* block_scratch = sum + D * kLanes;         // [D_in, L]
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t group = 0; group < groups; ++group)
      child_gradient<kDim>(range, step, group, i, sum, grad_votes + group * J * D * kLanes);
    if (step.grad_weight == nullptr) continue;
    for (int64_t j = 0; j < J; ++j) {
      const auto grad_vote = [&](int64_t group, int64_t d) HWY_ATTR {
        return load(grad_votes + ((group * J + j) * D + d) * kLanes);
      };
      block_gradient<kDim>(range, step.from, i, grad_vote, /*accumulate=*/false, block_scratch,
                           step.grad_weight + (i * J + j) * D * Pose<kDim>::dim(shape));
    }
  }
}

void distance_gradient_any(const ChildRange& range, const DistanceGradientStep& step,
                           float* scratch) {
  with_child_dim(range.shape,
                 [&](auto dim) HWY_ATTR { distance_gradient_of<dim()>(range, step, scratch); });
}

void clamped_gradient_any(const ChildRange& range, const ClampedGradientStep& step,
                          float* scratch) {
  with_child_dim(range.shape,
                 [&](auto dim) HWY_ATTR { clamped_gradient_of<dim()>(range, step, scratch); });
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(distance_gradient_any);
HWY_EXPORT(clamped_gradient_any);
#endif

int64_t distance_gradient_scratch_floats(const RoutingShape& shape) {
  return (shape.pose_size() + shape.parent_dim) * image_lanes();
}

void distance_gradient(const ChildRange& range, const DistanceGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(distance_gradient_any)(range, step, scratch);
}

int64_t clamped_gradient_scratch_floats(const RoutingShape& shape, int64_t groups) {
  return (groups * shape.pose_size() + shape.parent_dim + shape.child_dim) * image_lanes();
}

void clamped_gradient(const ChildRange& range, const ClampedGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(clamped_gradient_any)(range, step, scratch);
}

}  // namespace remcaps::kernels
#endif
