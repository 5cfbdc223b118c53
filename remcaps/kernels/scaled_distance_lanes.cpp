#include "remcaps/kernels/scaled_distance_lanes.h"

#ifdef REMCAPS_HIGHWAY
#define HWY_DISABLED_TARGETS REMCAPS_DISABLED_TARGETS
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/scaled_distance_lanes.cpp"
#include <hwy/foreach_target.h>
#endif

#include "remcaps/kernels/couplings-inl.h"
#include "remcaps/kernels/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

template <int64_t kDim>
HWY_INLINE F squared_length(const Pose<kDim>& u, int64_t dim) {
  F sum = zero();
  for (int64_t k = 0; k < dim; ++k) sum = fma(u.get(k), u.get(k), sum);
  return sum;
}

// f_ij, as clamp_factor of host_device.h.
HWY_INLINE F clamp_factors(F vote2, F child2) {
  return if_greater(vote2, child2, sqrt(div(child2, vote2)), set(1.0F));
}

// The vote u^_ij as it is, kept in `vote`, [D_out, L]; returns f_ij.
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

// The distances of one child's votes, [J, L], become its couplings.
HWY_INLINE void couple(int64_t parents, F scale, const CouplingLevels& levels, float* couplings) {
  F highest = set(-INFINITY);
  for (int64_t j = 0; j < parents; ++j) {
    const F logit = mul(scale, load(couplings + j * kLanes));
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
    if (couplings != nullptr) couple(J, load(step.scales), step.levels, couplings);
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

// A vote's gradient is c_ij dL/ds_j taken back through the clamp: where that shortens, what lies
// along the vote goes to the child's length instead,
//   dL/du^_ij = c f (dL/ds_j - a u^_ij),  a = <u^_ij, dL/ds_j> / ||u^_ij||^2 (0 where f = 1)
//   ||u_i|| dL/d||u_i|| = sum_j c f <u^_ij, dL/ds_j>
// Leaves the first in `grad_vote`, [D_out, L]; returns the term of the second.
template <int64_t kDim>
HWY_INLINE F vote_gradient(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                           F coupling, F child2, const float* grad_sum, float* grad_vote) {
  F vote2 = zero(), along = zero();
  for_each_component(w, u, dim, parent_dim, [&](int64_t d, F x) HWY_ATTR {
    store(x, grad_vote + d * kLanes);
    vote2 = fma(x, x, vote2);
    along = fma(x, load(grad_sum + d * kLanes), along);
  });
  const F factor = mul(coupling, clamp_factors(vote2, child2));
  const F moved = if_greater(vote2, child2, mul(factor, along), zero());
  const F vote_factor = if_greater(vote2, child2, div(moved, vote2), zero());
  for (int64_t x = 0; x < parent_dim * kLanes; x += kLanes)
    store(sub(mul(factor, load(grad_sum + x)), mul(vote_factor, load(grad_vote + x))),
          grad_vote + x);
  return moved;
}

// One child in one group: dL/du^_ij of all its votes, [J, D_out, L], and dL/du_i, [D_in, L].
template <int64_t kDim>
HWY_INLINE void child_gradient(const ChildRange& range, const ClampedGradientStep& step,
                               int64_t group, int64_t i, float* grad_votes) {
  const RoutingShape& shape = range.shape;
  const GroupGradients& from = step.from;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  const int64_t at = group * from.children_stride + i * dim * kLanes;
  const Pose<kDim> u = pose_at<kDim>(range.children + at);
  const F child2 = squared_length(u, dim);
  F grad_length = zero();  // times the child's length
  Pose<kDim> grad(step.grad_children + at);
  for (int64_t k = 0; k < dim; ++k) grad.put(k, zero());
  for (int64_t j = 0; j < J; ++j) {
    const int64_t pair = i * J + j;
    const float* w = range.weight + pair * D * dim;
    const float* grad_sum = from.grad_sums + group * from.sums_stride + j * D * kLanes;
    float* grad_vote = grad_votes + j * D * kLanes;
    const F c = coupling_of(from, group, pair);
    if (!range.alive[pair]) {  // the clamp leaves a vote of 0 alone
      for (int64_t x = 0; x < D * kLanes; x += kLanes)
        store(mul(c, load(grad_sum + x)), grad_vote + x);
      continue;
    }
    grad_length = add(grad_length, vote_gradient(w, u, dim, D, c, child2, grad_sum, grad_vote));
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
  float* grad_votes = scratch;                               // [groups, J, D_out, L]
  float* block_scratch = scratch + groups * J * D * kLanes;  // [D_in, L]
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t group = 0; group < groups; ++group)
      child_gradient<kDim>(range, step, group, i, grad_votes + group * J * D * kLanes);
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
HWY_EXPORT(measure_distances_any);
HWY_EXPORT(sum_clamped_votes_any);
HWY_EXPORT(clamped_gradient_any);
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

int64_t clamped_gradient_scratch_floats(const RoutingShape& shape, int64_t groups) {
  return (groups * shape.pose_size() + shape.child_dim) * image_lanes();
}

void clamped_gradient(const ChildRange& range, const ClampedGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(clamped_gradient_any)(range, step, scratch);
}

}  // namespace remcaps::kernels
#endif
