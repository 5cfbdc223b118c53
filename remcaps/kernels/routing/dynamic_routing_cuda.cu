#include "remcaps/kernels/routing/dynamic_routing.h"

#include <algorithm>
#include <optional>

#include "remcaps/kernels/cuda/fork.h"
#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/routing/dynamic_routing_cuda.h"
#include "remcaps/kernels/routing/weight_gradient_cuda.h"

namespace remcaps::kernels::cuda {
namespace {

// The results of the iterations: of all iterations if they are saved, else of the last one.
struct Trail {
  Trail(Arena& arena, const Plan& plan, int64_t iterations, bool all)
      : u(arena.take(plan.child_floats())), plan_(plan), all_(all) {
    const int64_t kept = all ? iterations : 1;
    sums_ = arena.take(kept * plan.pose_floats());
    agreed_ = arena.take(iterations * plan.pose_floats());
    couplings_ =
        arena.take((all ? iterations - 1 : int64_t(iterations > 1)) * plan.coupling_floats());
  }

  float* u;  ///< the children in image-last layout, [I, D_in, P]

  float* sums(int64_t iteration) const {
    return sums_ + (all_ ? iteration : 0) * plan_.pose_floats();
  }
  // The sum of the poses of all iterations up to this one.
  float* agreed(int64_t iteration) const { return agreed_ + iteration * plan_.pose_floats(); }
  // `iteration` is 1 or more.
  float* couplings(int64_t iteration) const {
    return couplings_ + (all_ ? iteration - 1 : 0) * plan_.coupling_floats();
  }

 private:
  const Plan& plan_;
  bool all_;
  float *sums_, *agreed_, *couplings_;
};

// The scratch memory of each pass.
struct ForwardScratch {
  ForwardScratch(Arena& arena, const Plan& plan)
      : partial(arena.take(plan.chunks * plan.pose_floats())),
        poses(arena.take(plan.pose_floats())) {}
  float *partial, *poses;
};

struct BackwardScratch {
  BackwardScratch(Arena& arena, const Plan& plan, int64_t iterations)
      : partial(arena.take(plan.chunks * plan.pose_floats())),
        carried(arena.take(plan.pose_floats())),
        grad_sums(arena.take(iterations * plan.pose_floats())),
        grad_logits(arena.take(plan.coupling_floats())),
        grad_u(arena.take(plan.child_floats())) {}
  float *partial, *carried, *grad_sums, *grad_logits, *grad_u;
};

// Launches the kernels of one problem on one stream.
class Launcher : public RoutingSteps {
 public:
  Launcher(const Plan& plan, const float* weight, const float* u, cudaStream_t stream)
      : RoutingSteps(plan.dims, stream), plan_(plan), weight_(weight), u_(u) {}

  void products(const float* x, float* out) const {
    with_pose_sizes(
        dims_.child_dim, dims_.parent_dim,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          vote_products<kDin, kDout>
              <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
                 stream_>>>(dims_, plan_.chunk, u_, weight_, x, out);
        },
        [&] {
          vote_products_any<<<blocks_for(plan_.coupling_floats(), 256), 256, 0, stream_>>>(
              dims_, u_, weight_, x, out);
        });
    check_launch("vote_products");
  }

  void weighted_sums(const float* factors, float* partial) const {
    with_pose_sizes(
        dims_.child_dim, dims_.parent_dim,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          weighted_votes<kDin, kDout>
              <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
                 stream_>>>(dims_, plan_.chunk, u_, weight_, factors, partial);
        },
        [&] {
          const dim3 grid(blocks_for(plan_.pose_floats(), 256), plan_.chunks);
          weighted_votes_any<<<grid, 256, 0, stream_>>>(dims_, plan_.chunk, u_, weight_, factors,
                                                        partial);
        });
    check_launch("weighted_votes");
  }

  void children_gradient(const float* factors, float uniform, const float* x, bool accumulate,
                         float* grad_u) const {
    with_pose_sizes(
        dims_.child_dim, dims_.parent_dim,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          constexpr int kWarps = 8;
          const dim3 grid(blocks_for(dims_.children, kWarps), plan_.tiles);
          child_gradient<kDin, kDout>
              <<<grid, dim3(kWarp, kWarps), queue_bytes<kDin, kDout>(kWarps), stream_>>>(
                  dims_, weight_, factors, uniform, x, accumulate, grad_u);
        },
        [&] {
          child_gradient_any<<<blocks_for(plan_.child_floats(), 256), 256, 0, stream_>>>(
              dims_, weight_, factors, uniform, x, accumulate, grad_u);
        });
    check_launch("child_gradient");
  }

  // `children` in their original layout.
  void weights_gradient(const float* children, const float* factors, float uniform, const float* x,
                        bool accumulate, float* grad_weight) const {
    with_pose_sizes(
        dims_.child_dim, dims_.parent_dim,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          constexpr int kRows = std::min(kDout, 128 / kDin);
          const dim3 grid(blocks_for(dims_.children, kWarp), dims_.parents, kDout / kRows);
          weight_gradient<kDin, kDout, kRows, /*kWithVotes=*/false, /*kTerms=*/1>
              <<<grid, dim3(kWarp, kGradientWarps), 0, stream_>>>(dims_,
                                                                  {.children = children,
                                                                   .factors = factors,
                                                                   .uniform = uniform,
                                                                   .terms = {{x, nullptr, 1}},
                                                                   .vote_factors = nullptr,
                                                                   .weight = nullptr,
                                                                   .accumulate = accumulate,
                                                                   .grad_weight = grad_weight});
        },
        [&] {
          const int64_t weights =
              int64_t(dims_.children) * dims_.parents * dims_.parent_dim * dims_.child_dim;
          weight_gradient_any<<<blocks_for(weights, 256), 256, 0, stream_>>>(
              dims_, u_, factors, uniform, x, accumulate, grad_weight);
        });
    check_launch("weight_gradient");
  }

 private:
  const Plan& plan_;
  const float *weight_, *u_;
};

}  // namespace

int64_t dynamic_routing_saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  const Plan plan(shape);
  Arena arena(nullptr);
  Trail(arena, plan, rule.iterations, /*all=*/true);
  return arena.used();
}

int64_t dynamic_routing_forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                               bool saves) {
  const Plan plan(shape);
  Arena arena(nullptr);
  ForwardScratch(arena, plan);
  if (!saves) Trail(arena, plan, rule.iterations, /*all=*/false);
  return arena.used();
}

int64_t dynamic_routing_backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                                const RoutingGradients&) {
  const Plan plan(shape);
  Arena arena(nullptr);
  BackwardScratch(arena, plan, rule.iterations);
  return arena.used();
}

void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream) {
  const Plan plan(shape);
  Arena scratch_arena(scratch), saved_arena(saved);
  const ForwardScratch work(scratch_arena, plan);
  const Trail trail(saved == nullptr ? scratch_arena : saved_arena, plan, rule.iterations,
                    saved != nullptr);
  const Launcher launch(plan, weight, trail.u, stream);
  const int64_t last = rule.iterations - 1;

  launch.to_image_last(shape.children * shape.child_dim, children, trail.u);
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    const float* factors = nullptr;
    if (iteration > 0) {
      launch.products(trail.agreed(iteration - 1), trail.couplings(iteration));
      launch.softmax(/*scales=*/nullptr, iteration == last ? rule.levels : CouplingLevels{},
                     trail.couplings(iteration), trail.couplings(iteration));
      factors = trail.couplings(iteration);
    }
    launch.weighted_sums(factors, work.partial);
    launch.squash({.partial = work.partial,
                   .chunks = plan.chunks,
                   .scale = iteration == 0 ? rule.first_coupling : 1.0F,
                   .epsilon = rule.epsilon,
                   .bias = rule.bias_every_iteration || iteration == last ? bias : nullptr,
                   .agreed_before = iteration == 0 ? nullptr : trail.agreed(iteration - 1),
                   .sums = trail.sums(iteration),
                   .poses = work.poses,
                   .agreed = trail.agreed(iteration)});
  }
  launch.to_image_first(shape.pose_size(), work.poses, poses);
  if (couplings != nullptr)
    launch.give_couplings(last == 0 ? nullptr : trail.couplings(last), rule.first_coupling,
                          couplings);
}

void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream) {
  const Plan plan(shape);
  Arena scratch_arena(scratch), saved_arena(const_cast<float*>(saved));
  const BackwardScratch work(scratch_arena, plan, rule.iterations);
  const Trail trail(saved_arena, plan, rule.iterations, /*all=*/true);
  const Launcher launch(plan, weight, trail.u, stream);
  const int64_t last = rule.iterations - 1;
  // Rounded couplings carry no gradient back to earlier iterations.
  const bool through_couplings =
      rule.levels.count == 0 &&
      (rule.full_gradient || (gradients.bias != nullptr && rule.bias_every_iteration));

  launch.to_image_last(shape.pose_size(), grad_poses, work.carried);
  // The published gradient of children and weights comes from the last iteration alone, the
  // gradient of the bias from all iterations. Neither fills the device, so that they run side by
  // side.
  std::optional<Fork> fork;
  int64_t first_done = last;
  for (int64_t iteration = last; iteration >= 0; --iteration) {
    first_done = iteration;
    float* grad_sums = work.grad_sums + (last - iteration) * plan.pose_floats();
    launch.squash_backward({.partial = work.partial,
                            .chunks = iteration == last ? 0 : plan.chunks,
                            .epsilon = rule.epsilon,
                            .fresh = iteration == last - 1,
                            .sums = trail.sums(iteration),
                            .carried = work.carried,
                            .grad_sums = grad_sums});
    const float* factors = iteration == 0 ? nullptr : trail.couplings(iteration);
    const float uniform = rule.first_coupling;
    const bool direct = iteration == last || rule.full_gradient, more = iteration != last;
    if (iteration == last && through_couplings && !rule.full_gradient) fork.emplace(stream);
    const Launcher beside(plan, weight, trail.u, fork ? fork->side() : stream);
    if (direct && gradients.children != nullptr)
      beside.children_gradient(factors, uniform, grad_sums, more, work.grad_u);
    if (direct && gradients.weight != nullptr)
      beside.weights_gradient(children, factors, uniform, grad_sums, more, gradients.weight);
    if (iteration == 0 || !through_couplings) break;

    launch.products(grad_sums, work.grad_logits);
    launch.softmax_backward(factors, work.grad_logits);
    const float* agreed = trail.agreed(iteration - 1);
    if (rule.full_gradient && gradients.children != nullptr)
      launch.children_gradient(work.grad_logits, 0, agreed, true, work.grad_u);
    if (rule.full_gradient && gradients.weight != nullptr)
      launch.weights_gradient(children, work.grad_logits, 0, agreed, true, gradients.weight);
    launch.weighted_sums(work.grad_logits, work.partial);
  }

  if (gradients.bias != nullptr) {
    const int iterations = rule.bias_every_iteration ? static_cast<int>(last - first_done + 1) : 1;
    launch.bias_gradient(iterations, work.grad_sums, gradients.bias);
  }
  if (fork) fork->join();
  if (gradients.children != nullptr)
    launch.to_image_first(shape.children * shape.child_dim, work.grad_u, gradients.children);
}

}  // namespace remcaps::kernels::cuda
