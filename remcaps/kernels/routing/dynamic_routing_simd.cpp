#include "remcaps/kernels/routing/dynamic_routing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/dynamic_routing_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/routing/votes_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::BackwardStep;
using simd::WeightGradientStep;

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

// Writes the vote u^_ij to `votes` and returns u^_ij . agreed_j.
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

template <int64_t kDim>
void backward_votes_of(const ChildRange& range, const BackwardStep& step, float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  float* grad_votes = scratch;  // dL/du^_ij of one parent, [D_out, L]
  float* back_memory = scratch + D * kLanes;
  const bool need_logits = step.grad_agreed != nullptr || step.agreed != nullptr;
  if (step.grad_agreed != nullptr)
    for (int64_t x = 0; x < J * D; ++x) store(zero(), step.grad_agreed + x * kLanes);

  for (int64_t i = range.begin; i < range.end; ++i) {
    const Pose<kDim> u = child_pose<kDim>(range, i);
    const uint8_t* alive = range.alive + i * J;
    const float* w_child = range.weight + i * J * D * dim;
    float* grad_child =
        step.grad_children == nullptr ? nullptr : step.grad_children + i * dim * kLanes;
    float* logits =
        need_logits ? step.grad_logits + (i - range.begin) * J * kLanes : nullptr;  // [J, L]
    Pose<kDim> back(back_memory);                 // W_ij^T dL/ds_j
    Pose<kDim> grad(back_memory + dim * kLanes);  // dL/du_i
    for (int64_t k = 0; k < dim; ++k)
      grad.put(k,
               step.accumulate && grad_child != nullptr ? load(grad_child + k * kLanes) : zero());

    // dL/dc_ij = u^_ij . dL/ds_j = u_i . (W_ij^T dL/ds_j)
    F mean = zero();
    for (int64_t j = 0; j < J; ++j) {
      F grad_coupling = zero();
      const F c = step.couplings == nullptr ? set(step.uniform)
                                            : load(step.couplings + (i * J + j) * kLanes);
      if (alive[j]) {
        for (int64_t k = 0; k < dim; ++k) back.put(k, zero());
        add_transposed(w_child + j * D * dim, D, step.grad_sums + j * D * kLanes, dim, back);
        for (int64_t k = 0; k < dim; ++k) grad_coupling = fma(u.get(k), back.get(k), grad_coupling);
        for (int64_t k = 0; k < dim; ++k) grad.put(k, fma(c, back.get(k), grad.get(k)));
      }
      if (need_logits) store(grad_coupling, logits + j * kLanes);
      mean = fma(c, grad_coupling, mean);
    }
    if (need_logits) {
      for (int64_t j = 0; j < J; ++j) {
        const F c = load(step.couplings + (i * J + j) * kLanes);
        const F grad_logit = mul(c, sub(load(logits + j * kLanes), mean));
        store(grad_logit, logits + j * kLanes);
        if (!alive[j]) continue;
        const float* w = w_child + j * D * dim;
        if (step.grad_agreed != nullptr)
          accumulate_vote(w, u, dim, D, grad_logit, step.grad_agreed + j * D * kLanes);
        if (step.agreed != nullptr && grad_child != nullptr) {
          for (int64_t d = 0; d < D; ++d)
            store(mul(grad_logit, load(step.agreed + (j * D + d) * kLanes)),
                  grad_votes + d * kLanes);
          add_transposed(w, D, grad_votes, dim, grad);
        }
      }
    }
    if (grad_child != nullptr)
      for (int64_t k = 0; k < dim; ++k) store(grad.get(k), grad_child + k * kLanes);
  }
}

template <int64_t kDim>
void weight_gradient_of(const ChildRange& range, const WeightGradientStep& step, float* scratch) {
  const RoutingShape& shape = range.shape;
  const GroupGradients& from = step.from;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  // Parents in the outer loop: the D_out x groups vectors of one parent stay in cache.
  for (int64_t j = 0; j < J; ++j) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const auto grad_vote = [&](int64_t group, int64_t d) HWY_ATTR {
        const int64_t at = group * from.sums_stride + (j * D + d) * kLanes;
        const F direct = mul(coupling_of(from, group, i * J + j), load(from.grad_sums + at));
        if (step.agreed == nullptr) return direct;
        return fma(load(step.grad_logits + group * step.logits_stride +
                        ((i - range.begin) * J + j) * kLanes),
                   load(step.agreed + at), direct);
      };
      block_gradient<kDim>(range, from, i, grad_vote, step.accumulate, scratch,
                           step.grad_weight + (i * J + j) * D * dim);
    }
  }
}

void backward_votes_any(const ChildRange& range, const BackwardStep& step, float* scratch) {
  with_child_dim(range.shape,
                 [&](auto dim) HWY_ATTR { backward_votes_of<dim()>(range, step, scratch); });
}

void weight_gradient_any(const ChildRange& range, const WeightGradientStep& step, float* scratch) {
  with_child_dim(range.shape,
                 [&](auto dim) HWY_ATTR { weight_gradient_of<dim()>(range, step, scratch); });
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(sum_votes_any);
HWY_EXPORT(route_votes_any);
HWY_EXPORT(backward_votes_any);
HWY_EXPORT(weight_gradient_any);
#endif

int64_t dynamic_routing_scratch_floats(const RoutingShape& shape) {
  return (shape.pose_size() + shape.parents + shape.parent_dim + 2 * shape.child_dim) *
         lane_count();
}

void sum_votes(const ChildRange& range, float* sums) {
  REMCAPS_DISPATCH(sum_votes_any)(range, sums);
}

void route_votes(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                 float* couplings, float* sums, float* scratch) {
  REMCAPS_DISPATCH(route_votes_any)(range, agreed, levels, couplings, sums, scratch);
}

void backward_votes(const ChildRange& range, const BackwardStep& step, float* scratch) {
  REMCAPS_DISPATCH(backward_votes_any)(range, step, scratch);
}

void weight_gradient(const ChildRange& range, const WeightGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(weight_gradient_any)(range, step, scratch);
}

}  // namespace remcaps::kernels::simd
#endif
