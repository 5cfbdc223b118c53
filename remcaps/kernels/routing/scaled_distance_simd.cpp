#include "remcaps/kernels/routing/scaled_distance.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/scaled_distance_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/routing/votes_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::ClampedGradientStep;
using simd::DistanceCouplings;
using simd::DistanceGradientStep;
using simd::DistanceTerm;

template <int64_t kDim>
HWY_INLINE F squared_length(const Pose<kDim>& u, int64_t dim) {
  F sum = zero();
  for (int64_t k = 0; k < dim; ++k) sum = fma(u.get(k), u.get(k), sum);
  return sum;
}

// f_ij: clamp_factor() of formulas.h.
HWY_INLINE F clamp_factors(F vote2, F child2) {
  return if_greater(vote2, child2, sqrt(div(child2, vote2)), set(1.0F));
}

// Writes the vote u^_ij, not shortened, to `vote`, [D_out, L], and returns f_ij.
template <int64_t kDim>
HWY_INLINE F make_vote(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                       F child2, float* vote) {
  F vote2 = zero();
  for_each_component(w, u, dim, parent_dim, [&](int64_t d, F x) HWY_ATTR {
    store(x, vote + d * kLanes);
    vote2 = fma(x, x, vote2);
  });
  return clamp_factors(vote2, child2);
}

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

// Turns the distances of one child's votes, [J, L], into its couplings. Both may be the same array.
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

// 1 / distance, or 0 for a distance of 0: torch gives a norm of 0 the gradient 0.
HWY_INLINE F inverse_distance(F distance) {
  return if_greater(distance, zero(), div(set(1.0F), distance), zero());
}

// Writes the vote u'_ij to `vote`, [D_out, L], and returns dL/dc_ij = <u'_ij, dL/ds_j>.
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

// by_logits += grad_logit / distance (pose - vote); by_mean += 1 / distance (pose - vote).
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

// dL/du'_ij = factor x_j + pull u'_ij. Only the full gradient has the second term.
struct ClampedVoteGradient {
  F factor;        ///< of `x`
  const float* x;  ///< [D_out, L]
  F pull;
};

// Takes a vote's gradient back through the clamp. If the clamp shortens the vote, the part along
// the vote goes to the child's length instead:
//   dL/du^_ij = f (x - a u^_ij),  a = <u^_ij, x> / ||u^_ij||^2
//   ||u_i|| dL/d||u_i|| = sum_j (f <u^_ij, x> + pull ||u_i||^2)
// If f = 1, dL/du^_ij = x + pull u^_ij.
// Writes dL/du^_ij to `grad_vote`, [D_out, L], and returns this parent's term of the second sum.
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

// Adds what an iteration contributes to the gradient of a vote to `x`, [D_out, L], without the part
// along the vote. Returns the factor of that part. `pair` is i J + j.
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

// dL/du'_ij. A single term is not copied. Several terms are added up in `sum`, [D_out, L].
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

// For one child in one group: dL/du^_ij of all its votes, [J, D_out, L], and dL/du_i, [D_in, L].
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
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(measure_distances_any);
HWY_EXPORT(sum_clamped_votes_any);
HWY_EXPORT(distance_gradient_any);
HWY_EXPORT(clamped_gradient_any);
#endif

int64_t distance_scratch_floats(const RoutingShape& shape) {
  return (shape.parent_dim + shape.parents) * lane_count();
}

void measure_distances(const ChildRange& range, const float* poses, float* distances, float* totals,
                       float* scratch) {
  REMCAPS_DISPATCH(measure_distances_any)(range, poses, distances, totals, scratch);
}

void sum_clamped_votes(const ChildRange& range, const DistanceCouplings& step, float* sums,
                       float* scratch) {
  REMCAPS_DISPATCH(sum_clamped_votes_any)(range, step, sums, scratch);
}

int64_t distance_gradient_scratch_floats(const RoutingShape& shape) {
  return (shape.pose_size() + shape.parent_dim) * lane_count();
}

void distance_gradient(const ChildRange& range, const DistanceGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(distance_gradient_any)(range, step, scratch);
}

int64_t clamped_gradient_scratch_floats(const RoutingShape& shape, int64_t groups) {
  return (groups * shape.pose_size() + shape.parent_dim + shape.child_dim) * lane_count();
}

void clamped_gradient(const ChildRange& range, const ClampedGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(clamped_gradient_any)(range, step, scratch);
}

}  // namespace remcaps::kernels::simd
#endif
