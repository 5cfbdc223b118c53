// What the CPU's routing algorithms share around their SIMD loops.
#pragma once

#include <cstdint>
#include <vector>

#include "remcaps/kernels/routing/layout_cpu.h"
#include "remcaps/kernels/routing/steps_simd.h"

namespace remcaps::kernels::cpu {

/// What all passes need: the packed children and the blocks worth visiting.
struct Problem {
  Problem(const RoutingShape& shape, const float* children, const float* weight);

  ChildRange range(int64_t chunk, int64_t group) const;

  RoutingShape shape;
  Cut cut;
  const float* weight;
  std::vector<uint8_t> alive;  ///< 1 for each block W_ij that has a weight other than zero, [I, J]
  Buffer packed;               ///< [groups, I, D_in, L]
};

/// work(chunk, scratch) for every chunk of children, on all threads.
template <typename Work>
void for_each_chunk(const Cut& cut, int64_t scratch_floats, const Work& work) {
  TaskQueue queue(cut.chunks);
  on_every_thread([&] {
    const Buffer scratch(scratch_floats);
    while (const auto chunk = queue.next()) work(*chunk, scratch.get());
  });
}

/// The end of an iteration of the forward pass, for all groups: partial sums of the votes [chunks,
/// groups, J, D_out, L] to sums s_j and poses v_j, [groups, J, D_out, L] both.
void squash_partial(const Problem& problem, const RoutingRule& rule, int64_t iteration,
                    const float* bias, const float* partial, float* sums, float* poses);

/// The couplings of the last iteration, [groups, I, J, L] or null where it is also the first, as
/// [B, I, J].
void give_couplings(const Problem& problem, const RoutingRule& rule, const float* packed,
                    float* couplings);

/// dL/ds_j out of dL/dv_j for all groups.
void squash_gradients(const Problem& problem, const RoutingRule& rule, const float* sums,
                      const float* grad_poses, float* grad_sums);

/// grad_bias[j, d] += sum over images of grad_sums[group, j, d, image].
void add_bias_gradient(const Problem& problem, const float* grad_sums, float* grad_bias);

}  // namespace remcaps::kernels::cpu
