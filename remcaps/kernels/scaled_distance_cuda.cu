#include "remcaps/kernels/scaled_distance_cuda.h"

#include <cmath>
#include <stdexcept>

#include "remcaps/kernels/cuda_launch.cuh"
#include "remcaps/kernels/routing_plan.cuh"
#include "remcaps/kernels/routing_steps.cuh"
#include "remcaps/kernels/scaled_distance_kernels.cuh"
#include "remcaps/kernels/weight_gradient.cuh"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kChildWarps = 8;  // children of a block of vote_gradient

// What the forward pass leaves of its last iteration, for the backward pass if there is one.
struct LastIteration {
  LastIteration(Arena& arena, const Plan& plan, int64_t iterations)
      : u(arena.take(plan.child_floats())), sums(arena.take(plan.pose_floats())) {
    if (iterations > 1) couplings = arena.take(plan.coupling_floats());
  }
  float *u, *sums;
  float* couplings = nullptr;  ///< null: uniform; holds each iteration's distances in between
};

struct DistanceScratch {
  DistanceScratch(Arena& arena, const Plan& plan)
      : partial(arena.take(plan.chunks * plan.pose_floats())),
        poses(arena.take(plan.pose_floats())),
        totals(arena.take(int64_t(total_rows(plan)) * plan.dims.padded)),
        scales(arena.take(plan.dims.padded)) {}
  static int total_rows(const Plan& plan) { return plan.chunks * plan.parent_blocks; }
  float *partial, *poses, *totals, *scales;
};

struct VoteGradientScratch {
  VoteGradientScratch(Arena& arena, const Plan& plan, const RoutingGradients& gradients)
      : grad_poses(arena.take(plan.pose_floats())),
        grad_sums(arena.take(plan.pose_floats())),
        grad_u(arena.take(plan.child_floats())) {
    if (gradients.weight == nullptr) return;
    factors = arena.take(plan.coupling_floats());
    vote_factors = arena.take(plan.coupling_floats());
  }
  float *grad_poses, *grad_sums, *grad_u;
  float *factors = nullptr, *vote_factors = nullptr;
};

class DistanceLauncher : public RoutingSteps {
 public:
  DistanceLauncher(const Plan& plan, const float* weight, const float* u, cudaStream_t stream)
      : RoutingSteps(plan.dims, stream), plan_(plan), weight_(weight), u_(u) {}

  void weighted_sums(const float* couplings, float* partial) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      clamped_sums<kDin, kDout>
          <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
             stream_>>>(dims_, plan_.chunk, u_, weight_, couplings, partial);
    });
    check_launch("clamped_sums");
  }

  void distances(const float* poses, float* out, float* totals) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      vote_distances<kDin, kDout>
          <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
             stream_>>>(dims_, plan_.chunk, u_, weight_, poses, out, totals);
    });
    check_launch("vote_distances");
  }

  void logit_scales(Agreement agreement, const float* totals, float* scales) const {
    // One parent takes all whatever its distance.
    const double log_odds = dims_.parents > 1 ? std::log(9.0 * (dims_.parents - 1)) : 0.0;
    const auto kernel =
        agreement == Agreement::kImageDistance ? distance_scales<true> : distance_scales<false>;
    kernel<<<1, dim3(kWarp, kScaleRows), 0, stream_>>>(
        dims_, DistanceScratch::total_rows(plan_), static_cast<float>(log_odds), totals, scales);
    check_launch("distance_scales");
  }

  void votes_gradient(const VoteGradientArguments& arguments) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      const dim3 grid(blocks_for(dims_.children, kChildWarps), plan_.tiles);
      vote_gradient<kDin, kDout, kChildWarps>
          <<<grid, dim3(kWarp, kChildWarps), queue_bytes<kDin, kDout>(kChildWarps), stream_>>>(
              dims_, arguments);
    });
    check_launch("vote_gradient");
  }

  void weights_gradient(const WeightGradientArguments& arguments) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      // A lane's sums and moments have to fit in registers.
      constexpr int kRows = kDin > 8 ? 4 : std::min(kDout, 16);
      const dim3 grid(blocks_for(dims_.children, kWarp), dims_.parents, kDout / kRows);
      weight_gradient<kDin, kDout, kRows, /*kWithVotes=*/true>
          <<<grid, dim3(kWarp, kGradientWarps), 0, stream_>>>(dims_, arguments);
    });
    check_launch("weight_gradient");
  }

 private:
  template <typename Fast>
  void with_sizes(const Fast& fast) const {
    with_pose_sizes(dims_.child_dim, dims_.parent_dim, fast, [&] {
      throw std::logic_error("scaled-distance routing: no kernel for poses of " +
                             std::to_string(dims_.child_dim) + " and " +
                             std::to_string(dims_.parent_dim));
    });
  }

  const Plan& plan_;
  const float *weight_, *u_;
};

}  // namespace

bool has_scaled_distance_kernels(int64_t child_dim, int64_t parent_dim) {
  return with_pose_sizes(
      child_dim, parent_dim, [](auto) { return true; }, [] { return false; });
}

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  const Plan plan(shape);
  Arena arena(nullptr);
  LastIteration(arena, plan, rule.iterations);
  return arena.used();
}

int64_t scaled_distance_forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                               bool saves) {
  const Plan plan(shape);
  Arena arena(nullptr);
  DistanceScratch(arena, plan);
  if (!saves) LastIteration(arena, plan, rule.iterations);
  return arena.used();
}

int64_t scaled_distance_backward_scratch_floats(const RoutingShape& shape, const RoutingRule&,
                                                const RoutingGradients& gradients) {
  const Plan plan(shape);
  Arena arena(nullptr);
  VoteGradientScratch(arena, plan, gradients);
  return arena.used();
}

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream) {
  const Plan plan(shape);
  Arena scratch_arena(scratch), saved_arena(saved);
  const DistanceScratch work(scratch_arena, plan);
  const LastIteration kept(saved == nullptr ? scratch_arena : saved_arena, plan, rule.iterations);
  const DistanceLauncher launch(plan, weight, kept.u, stream);
  const int64_t last = rule.iterations - 1;

  launch.lanes_from(shape.children * shape.child_dim, children, kept.u);
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    if (iteration > 0) {
      launch.distances(work.poses, kept.couplings, work.totals);
      launch.logit_scales(rule.agreement, work.totals, work.scales);
      launch.softmax(work.scales, iteration == last ? rule.levels : CouplingLevels{},
                     kept.couplings);
    }
    launch.weighted_sums(iteration == 0 ? nullptr : kept.couplings, work.partial);
    launch.squash({.partial = work.partial,
                   .chunks = plan.chunks,
                   .scale = iteration == 0 ? rule.first_coupling : 1.0F,
                   .epsilon = rule.epsilon,
                   .bias = rule.bias_every_iteration || iteration == last ? bias : nullptr,
                   .agreed_before = nullptr,
                   .sums = kept.sums,
                   .poses = work.poses,
                   .agreed = nullptr});
  }
  launch.rows_from(shape.pose_size(), work.poses, poses);
  if (couplings != nullptr)
    launch.give_couplings(last == 0 ? nullptr : kept.couplings, rule.first_coupling, couplings);
}

void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream) {
  const Plan plan(shape);
  Arena scratch_arena(scratch), saved_arena(const_cast<float*>(saved));
  const VoteGradientScratch work(scratch_arena, plan, gradients);
  const LastIteration kept(saved_arena, plan, rule.iterations);
  const DistanceLauncher launch(plan, weight, kept.u, stream);

  launch.lanes_from(shape.pose_size(), grad_poses, work.grad_poses);
  launch.squash_backward({.partial = nullptr,
                          .chunks = 0,
                          .epsilon = rule.epsilon,
                          .fresh = false,
                          .sums = kept.sums,
                          .carried = work.grad_poses,
                          .grad_sums = work.grad_sums});
  if (gradients.bias != nullptr) launch.bias_gradient(1, work.grad_sums, gradients.bias);
  if (gradients.children == nullptr && gradients.weight == nullptr) return;
  launch.votes_gradient({.u = kept.u,
                         .weight = weight,
                         .couplings = kept.couplings,
                         .uniform = rule.first_coupling,
                         .grad_sums = work.grad_sums,
                         .grad_u = work.grad_u,
                         .factors = work.factors,
                         .vote_factors = work.vote_factors});
  if (gradients.children != nullptr)
    launch.rows_from(shape.children * shape.child_dim, work.grad_u, gradients.children);
  if (gradients.weight != nullptr)
    launch.weights_gradient({.children = children,
                             .factors = work.factors,
                             .uniform = 0,
                             .x = work.grad_sums,
                             .vote_factors = work.vote_factors,
                             .weight = weight,
                             .accumulate = false,
                             .grad_weight = gradients.weight});
}

}  // namespace remcaps::kernels::cuda
