#include "remcaps/kernels/dynamic_routing_cuda.h"

#include <algorithm>

#include "remcaps/kernels/cuda_launch.cuh"
#include "remcaps/kernels/dynamic_routing_generic.cuh"
#include "remcaps/kernels/dynamic_routing_kernels.cuh"
#include "remcaps/kernels/dynamic_routing_pointwise.cuh"

namespace remcaps::kernels::cuda {
namespace {

// How a problem is cut up. It depends on the shape alone, so results repeat on any GPU.
struct Plan {
  explicit Plan(const RoutingShape& shape)
      : dims{static_cast<int>(shape.batch),     static_cast<int>((shape.batch + 3) / 4 * 4),
             static_cast<int>(shape.children),  static_cast<int>(shape.parents),
             static_cast<int>(shape.child_dim), static_cast<int>(shape.parent_dim)} {
    // One warp per parent. 256 blocks of ten warps fill the 132 multiprocessors of an H200 twice.
    warps = std::min(dims.parents, 10);
    parent_blocks = (dims.parents + warps - 1) / warps;
    tiles = (dims.padded + kTileImages - 1) / kTileImages;
    const int wanted = std::max(1, 264 / (parent_blocks * tiles));
    chunk = (dims.children + wanted - 1) / wanted;
    chunks = (dims.children + chunk - 1) / chunk;
  }

  int64_t child_floats() const { return int64_t(dims.children) * dims.child_dim * dims.padded; }
  int64_t pose_floats() const { return int64_t(dims.parents) * dims.parent_dim * dims.padded; }
  int64_t coupling_floats() const { return int64_t(dims.children) * dims.parents * dims.padded; }

  Dims dims;
  int warps, parent_blocks, tiles, chunk, chunks;
};

// Hands out consecutive pieces of one allocation, 16-byte aligned; sizes it when there is none yet.
class Arena {
 public:
  explicit Arena(float* memory) : memory_(memory) {}
  float* take(int64_t floats) {
    float* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (floats + 3) / 4 * 4;
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// What an iteration leaves: in `saved` for all iterations, else in scratch memory for the last one.
struct Trail {
  Trail(Arena& arena, const Plan& plan, int64_t iterations, bool all)
      : u(arena.take(plan.child_floats())), plan_(plan), all_(all) {
    const int64_t kept = all ? iterations : 1;
    sums_ = arena.take(kept * plan.pose_floats());
    agreed_ = arena.take(iterations * plan.pose_floats());
    couplings_ =
        arena.take((all ? iterations - 1 : int64_t(iterations > 1)) * plan.coupling_floats());
  }

  float* u;  ///< the children in lanes layout, [I, D_in, P]

  float* sums(int64_t iteration) const {
    return sums_ + (all_ ? iteration : 0) * plan_.pose_floats();
  }
  // The sum of the poses of all iterations up to this one.
  float* agreed(int64_t iteration) const { return agreed_ + iteration * plan_.pose_floats(); }
  // Of an iteration after the first.
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

template <int kDinValue, int kDoutValue>
struct PoseSizes {
  static constexpr int kDin = kDinValue, kDout = kDoutValue;
};

// Calls `fast` with the pose sizes as compile-time constants where there is a kernel for them, else
// `any`.
template <typename Fast, typename Any>
void with_pose_sizes(const Dims& dims, const Fast& fast, const Any& any) {
  if (dims.child_dim == 8 && dims.parent_dim == 16) return fast(PoseSizes<8, 16>{});
  if (dims.child_dim == 8 && dims.parent_dim == 8) return fast(PoseSizes<8, 8>{});
  if (dims.child_dim == 8 && dims.parent_dim == 32) return fast(PoseSizes<8, 32>{});
  if (dims.child_dim == 16 && dims.parent_dim == 16) return fast(PoseSizes<16, 16>{});
  any();
}

// Launches the kernels of one problem on one stream.
class Launcher {
 public:
  Launcher(const Plan& plan, const float* weight, const float* u, cudaStream_t stream)
      : plan_(plan), dims_(plan.dims), weight_(weight), u_(u), stream_(stream) {}

  void lanes_from(int64_t size, const float* from, float* to) const {
    const dim3 grid(blocks_for(size, kWarp), blocks_for(dims_.padded, kWarp));
    to_lanes<<<grid, dim3(kWarp, kTransposeRows), 0, stream_>>>(dims_.batch, dims_.padded, size,
                                                                from, to);
    check_launch("to_lanes");
  }

  void rows_from(int64_t size, const float* from, float* to) const {
    const dim3 grid(blocks_for(size, kWarp), blocks_for(dims_.padded, kWarp));
    from_lanes<<<grid, dim3(kWarp, kTransposeRows), 0, stream_>>>(dims_.batch, dims_.padded, size,
                                                                  from, to);
    check_launch("from_lanes");
  }

  void products(const float* x, float* out) const {
    with_pose_sizes(
        dims_,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          vote_products<kDin, kDout>
              <<<parent_grid(), parent_block(), queue_bytes<kDin, kDout>(plan_.warps), stream_>>>(
                  dims_, plan_.chunk, u_, weight_, x, out);
        },
        [&] {
          vote_products_any<<<blocks_for(plan_.coupling_floats(), 256), 256, 0, stream_>>>(
              dims_, u_, weight_, x, out);
        });
    check_launch("vote_products");
  }

  void weighted_sums(const float* factors, float* partial) const {
    with_pose_sizes(
        dims_,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          weighted_votes<kDin, kDout>
              <<<parent_grid(), parent_block(), queue_bytes<kDin, kDout>(plan_.warps), stream_>>>(
                  dims_, plan_.chunk, u_, weight_, factors, partial);
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
        dims_,
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
        dims_,
        [&](auto sizes) {
          constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
          constexpr int kRows = std::min(kDout, 128 / kDin);
          const dim3 grid(blocks_for(dims_.children, kWarp), dims_.parents, kDout / kRows);
          weight_gradient<kDin, kDout, kRows><<<grid, dim3(kWarp, kGradientWarps), 0, stream_>>>(
              dims_, children, factors, uniform, x, accumulate, grad_weight);
        },
        [&] {
          const int64_t weights =
              int64_t(dims_.children) * dims_.parents * dims_.parent_dim * dims_.child_dim;
          weight_gradient_any<<<blocks_for(weights, 256), 256, 0, stream_>>>(
              dims_, u_, factors, uniform, x, accumulate, grad_weight);
        });
    check_launch("weight_gradient");
  }

  void softmax(const CouplingLevels& levels, float* couplings) const {
    softmax_over_parents<<<blocks_for(int64_t(dims_.children) * dims_.padded, 128), 128, 0,
                           stream_>>>(dims_, levels, couplings);
    check_launch("softmax_over_parents");
  }

  void softmax_backward(const float* couplings, float* gradient) const {
    softmax_gradient<<<blocks_for(int64_t(dims_.children) * dims_.padded, 128), 128, 0, stream_>>>(
        dims_, couplings, gradient);
    check_launch("softmax_gradient");
  }

  void squash(const SquashArguments& arguments) const {
    squash_sums<<<squash_grid(), dim3(kWarp, kSquashRows), 0, stream_>>>(dims_, arguments);
    check_launch("squash_sums");
  }

  void squash_backward(const SquashGradientArguments& arguments) const {
    squash_gradient<<<squash_grid(), dim3(kWarp, kSquashRows), 0, stream_>>>(dims_, arguments);
    check_launch("squash_gradient");
  }

 private:
  dim3 parent_grid() const { return dim3(plan_.chunks, plan_.parent_blocks, plan_.tiles); }
  dim3 parent_block() const { return dim3(kWarp, plan_.warps); }
  dim3 squash_grid() const { return dim3(blocks_for(dims_.padded, kWarp), dims_.parents); }

  template <int kDin, int kDout>
  static size_t queue_bytes(int warps) {
    return warps * WeightQueue<kDin * kDout>::kFloats * sizeof(float);
  }

  const Plan& plan_;
  const Dims& dims_;
  const float *weight_, *u_;
  cudaStream_t stream_;
};

void fill_with(int64_t count, float value, float* to, cudaStream_t stream) {
  fill<<<blocks_for(count, 256), 256, 0, stream>>>(count, value, to);
  check_launch("fill");
}

}  // namespace

int64_t saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  const Plan plan(shape);
  Arena arena(nullptr);
  Trail(arena, plan, rule.iterations, /*all=*/true);
  return arena.used();
}

int64_t forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule, bool saves) {
  const Plan plan(shape);
  Arena arena(nullptr);
  ForwardScratch(arena, plan);
  if (!saves) Trail(arena, plan, rule.iterations, /*all=*/false);
  return arena.used();
}

int64_t backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
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

  launch.lanes_from(shape.children * shape.child_dim, children, trail.u);
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    const float* factors = nullptr;
    if (iteration > 0) {
      launch.products(trail.agreed(iteration - 1), trail.couplings(iteration));
      launch.softmax(iteration == last ? rule.levels : CouplingLevels{},
                     trail.couplings(iteration));
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
  launch.rows_from(shape.pose_size(), work.poses, poses);
  if (couplings == nullptr) return;
  const int64_t pairs = shape.children * shape.parents;
  if (last == 0)
    fill_with(shape.batch * pairs, rule.first_coupling, couplings, stream);
  else
    launch.rows_from(pairs, trail.couplings(last), couplings);
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
  // Only couplings that are smooth carry a gradient back to the iterations before.
  const bool through_couplings =
      rule.levels.count == 0 &&
      (gradients.full || (gradients.bias != nullptr && rule.bias_every_iteration));

  launch.lanes_from(shape.pose_size(), grad_poses, work.carried);
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
    const bool direct = iteration == last || gradients.full, more = iteration != last;
    if (direct && gradients.children != nullptr)
      launch.children_gradient(factors, uniform, grad_sums, more, work.grad_u);
    if (direct && gradients.weight != nullptr)
      launch.weights_gradient(children, factors, uniform, grad_sums, more, gradients.weight);
    if (iteration == 0 || !through_couplings) break;

    launch.products(grad_sums, work.grad_logits);
    launch.softmax_backward(factors, work.grad_logits);
    const float* agreed = trail.agreed(iteration - 1);
    if (gradients.full && gradients.children != nullptr)
      launch.children_gradient(work.grad_logits, 0, agreed, true, work.grad_u);
    if (gradients.full && gradients.weight != nullptr)
      launch.weights_gradient(children, work.grad_logits, 0, agreed, true, gradients.weight);
    launch.weighted_sums(work.grad_logits, work.partial);
  }

  if (gradients.bias != nullptr) {
    const int iterations = rule.bias_every_iteration ? static_cast<int>(last - first_done + 1) : 1;
    const int rows = static_cast<int>(shape.pose_size());
    constexpr int kWarps = 4;
    bias_gradient<<<blocks_for(rows, kWarps), dim3(kWarp, kWarps), 0, stream>>>(
        iterations, rows, plan.dims.batch, plan.dims.padded, work.grad_sums, gradients.bias);
    check_launch("bias_gradient");
  }
  if (gradients.children != nullptr)
    launch.rows_from(shape.children * shape.child_dim, work.grad_u, gradients.children);
}

}  // namespace remcaps::kernels::cuda
