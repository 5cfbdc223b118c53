#include "remcaps/kernels/dynamic_routing_lanes.h"

#ifdef REMCAPS_HIGHWAY
#define HWY_DISABLED_TARGETS REMCAPS_DISABLED_TARGETS
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/dynamic_routing_lanes_backward.cpp"
#include <hwy/foreach_target.h>
#endif

#include "remcaps/kernels/pose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// dL/ds = f dL/dv + 2 f'(n2) (dL/dv . s) s, with
// f'(n2) = 1 / ((1 + n2)^2 sqrt(n2 + eps)) - n2 / (2 (1 + n2) (n2 + eps)^(3/2)).
void squash_gradient_of(int64_t parents, int64_t parent_dim, const float* sums,
                        const float* grad_poses, float epsilon, float* grad_sums) {
  for (int64_t j = 0; j < parents; ++j) {
    const int64_t at = j * parent_dim * kLanes;
    F n2 = zero(), along = zero();
    for (int64_t d = 0; d < parent_dim; ++d) {
      const F s = load(sums + at + d * kLanes);
      n2 = fma(s, s, n2);
      along = fma(s, load(grad_poses + at + d * kLanes), along);
    }
    const F length2 = add(n2, set(epsilon));
    const F root = sqrt(length2);
    const F one_more = add(set(1.0F), n2);
    const F factor = div(n2, mul(one_more, root));
    const F twice_slope = sub(div(set(2.0F), mul(mul(one_more, one_more), root)),
                              div(n2, mul(one_more, mul(length2, root))));
    const F pull = mul(twice_slope, along);
    for (int64_t d = 0; d < parent_dim; ++d) {
      const int64_t x = at + d * kLanes;
      store(fma(factor, load(grad_poses + x), mul(pull, load(sums + x))), grad_sums + x);
    }
  }
}

// back[k] += sum_d W[d, k] x[d].
template <int64_t kDim>
HWY_INLINE void add_transposed(const float* w, int64_t parent_dim, const float* x, int64_t dim,
                               Pose<kDim>& back) {
  for (int64_t d = 0; d < parent_dim; ++d, w += dim) {
    const F value = load(x + d * kLanes);
    for (int64_t k = 0; k < dim; ++k) back.put(k, fma(set(w[k]), value, back.get(k)));
  }
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

// out[k] (+)= the sum of x[k] over all images.
template <int64_t kDim>
HWY_INLINE void put_sums(const Pose<kDim>& x, int64_t dim, bool accumulate, float* out) {
  if constexpr (kDim > 0) {
    static_assert(kDim % 4 == 0);
    float sums[kDim];
    for (int64_t k = 0; k < kDim; k += 4)
      store_four_sums(x.get(k), x.get(k + 1), x.get(k + 2), x.get(k + 3), sums + k);
    for (int64_t k = 0; k < kDim; ++k) out[k] = accumulate ? out[k] + sums[k] : sums[k];
  } else {
    for (int64_t k = 0; k < dim; ++k)
      out[k] = sum_of_lanes(x.get(k)) + (accumulate ? out[k] : 0.0F);
  }
}

template <int64_t kDim>
void weight_gradient_of(const ChildRange& range, const WeightGradientStep& step, float* scratch) {
  const RoutingShape& shape = range.shape;
  const int64_t dim = Pose<kDim>::dim(shape), J = shape.parents, D = shape.parent_dim;
  // Parent by parent, so that the D_out x groups vectors of one parent stay in cache.
  for (int64_t j = 0; j < J; ++j) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      float* out = step.grad_weight + (i * J + j) * D * dim;
      for (int64_t d = 0; d < D; ++d, out += dim) {
        Pose<kDim> sum(scratch);
        for (int64_t k = 0; k < dim; ++k) sum.put(k, zero());
        for (int64_t group = 0; group < step.groups; ++group) {
          const int64_t at = group * step.sums_stride + (j * D + d) * kLanes;
          const F c =
              step.couplings == nullptr
                  ? set(step.uniform)
                  : load(step.couplings + group * step.couplings_stride + (i * J + j) * kLanes);
          F grad_vote = mul(c, load(step.grad_sums + at));
          if (step.agreed != nullptr)
            grad_vote = fma(load(step.grad_logits + group * step.logits_stride +
                                 ((i - range.begin) * J + j) * kLanes),
                            load(step.agreed + at), grad_vote);
          const float* u = range.children + group * step.children_stride + i * dim * kLanes;
          for (int64_t k = 0; k < dim; ++k)
            sum.put(k, fma(grad_vote, load(u + k * kLanes), sum.get(k)));
        }
        put_sums(sum, dim, step.accumulate, out);
      }
    }
  }
}

void backward_votes_any(const ChildRange& range, const BackwardStep& step, float* scratch) {
  switch (range.shape.child_dim) {
    case 8:
      return backward_votes_of<8>(range, step, scratch);
    case 16:
      return backward_votes_of<16>(range, step, scratch);
    default:
      return backward_votes_of<0>(range, step, scratch);
  }
}

void weight_gradient_any(const ChildRange& range, const WeightGradientStep& step, float* scratch) {
  switch (range.shape.child_dim) {
    case 8:
      return weight_gradient_of<8>(range, step, scratch);
    case 16:
      return weight_gradient_of<16>(range, step, scratch);
    default:
      return weight_gradient_of<0>(range, step, scratch);
  }
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(squash_gradient_of);
HWY_EXPORT(backward_votes_any);
HWY_EXPORT(weight_gradient_any);
#endif

void squash_gradient(int64_t parents, int64_t parent_dim, const float* sums,
                     const float* grad_poses, float epsilon, float* grad_sums) {
  REMCAPS_DISPATCH(squash_gradient_of)(parents, parent_dim, sums, grad_poses, epsilon, grad_sums);
}

void backward_votes(const ChildRange& range, const BackwardStep& step, float* scratch) {
  REMCAPS_DISPATCH(backward_votes_any)(range, step, scratch);
}

void weight_gradient(const ChildRange& range, const WeightGradientStep& step, float* scratch) {
  REMCAPS_DISPATCH(weight_gradient_any)(range, step, scratch);
}

}  // namespace remcaps::kernels
#endif
