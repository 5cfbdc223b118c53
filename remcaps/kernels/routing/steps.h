// What dynamic and scaled-distance routing share: how a problem is cut up, how its arrays are laid
// out, and the cheap steps between the passes over the votes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/simd/buffer.h"

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace remcaps::kernels {

// The SIMD loops work on one group of images at a time, with one image per lane. Every weight is
// then a scalar that is broadcast to all lanes, no sum crosses lanes except the gradient of the
// weights, and a pruned block W_ij is skipped for all lanes at once. The last index of a group's
// arrays is the lane; L = lane_count(). Arrays are aligned to 64 bytes.
//   children                          [I, D_in, L]
//   poses, sums and their gradients   [J, D_out, L]
//   couplings                         [I, J, L]
namespace simd {

/// Lanes of this CPU's widest vectors: images of a group.
int64_t lane_count();

/// Children begin..end of the layer. Pointers into [I, ...] arrays point to child 0.
struct ChildRange {
  RoutingShape shape;
  int64_t begin = 0, end = 0;
  const float* weight = nullptr;    ///< [I, J, D_out, D_in]
  const uint8_t* alive = nullptr;   ///< [I, J], 0 if all of W_ij is zero
  const float* children = nullptr;  ///< u, [I, D_in, L]
};

/// sums = scale * (sum of all chunks) + bias; poses = squash(sums).
struct SquashStep {
  int64_t parents = 0, parent_dim = 0;
  const float* partial = nullptr;  ///< [chunks, J, D_out, L], chunks `stride` floats apart
  int64_t chunks = 0, stride = 0;
  float scale = 1, epsilon = 0;
  const float* bias = nullptr;  ///< [J, D_out] or null
  float* sums = nullptr;        ///< s_j
  float* poses = nullptr;       ///< v_j
};
void squash_sums(const SquashStep& step);

/// poses[j] = squash(sums[j]).
void squash_group(int64_t parents, int64_t parent_dim, const float* sums, float epsilon,
                  float* poses);

/// dL/ds_j from dL/dv_j.
void squash_gradient(int64_t parents, int64_t parent_dim, const float* sums,
                     const float* grad_poses, float epsilon, float* grad_sums);

/// What the gradients of children and weights are computed from, for all groups. A pointer points
/// to the first group's array; its stride is the distance in floats from one group to the next.
struct GroupGradients {
  int64_t groups = 0;
  int64_t children_stride = 0;       ///< of ChildRange::children
  const float* grad_sums = nullptr;  ///< dL/ds_j
  int64_t sums_stride = 0;
  const float* couplings = nullptr;  ///< c_ij; null: all are `uniform`
  int64_t couplings_stride = 0;
  float uniform = 0;
};

}  // namespace simd

namespace cpu {

/// How a problem is cut up: groups of one image per lane, and chunks of children. The weights of a
/// chunk fit the second-level cache while all groups pass over them. The cut depends on the shape
/// alone, so that results do not depend on the number of threads.
struct Cut {
  explicit Cut(const RoutingShape& shape)
      : lanes(simd::lane_count()),
        groups(pieces_of(shape.batch, lanes)),
        chunk(std::max<int64_t>(8, (shape.children + 31) / 32)),
        chunks(pieces_of(shape.children, chunk)),
        child_floats(shape.children * shape.child_dim * lanes),
        pose_floats(shape.pose_size() * lanes),
        coupling_floats(shape.children * shape.parents * lanes) {}

  int64_t lanes, groups, chunk, chunks;
  int64_t child_floats, pose_floats, coupling_floats;  ///< of one group's arrays
};

/// [B, X] -> [groups, X, L]. Lanes beyond the batch become zero.
void to_groups(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to);

/// [groups, X, L] -> [B, X].
void from_groups(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to);

/// What all passes need: the children in groups, and which blocks W_ij are not zero.
struct Problem {
  Problem(const RoutingShape& shape, const float* children, const float* weight);

  simd::ChildRange range(int64_t chunk, int64_t group) const;

  RoutingShape shape;
  Cut cut;
  const float* weight;
  std::vector<uint8_t> alive;  ///< [I, J], 1 for each block W_ij with a weight other than zero
  Buffer children;             ///< [groups, I, D_in, L]
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

/// The end of an iteration of the forward pass, for all groups: adds up the chunks' sums of votes,
/// [chunks, groups, J, D_out, L], and writes s_j and v_j, both [groups, J, D_out, L].
void squash_partial(const Problem& problem, const RoutingRule& rule, int64_t iteration,
                    const float* bias, const float* partial, float* sums, float* poses);

/// Writes the couplings of the last iteration as [B, I, J]. `from` is [groups, I, J, L], or null if
/// the last iteration is also the first.
void give_couplings(const Problem& problem, const RoutingRule& rule, const float* from,
                    float* couplings);

/// dL/ds_j from dL/dv_j, for all groups.
void squash_gradients(const Problem& problem, const RoutingRule& rule, const float* sums,
                      const float* grad_poses, float* grad_sums);

/// grad_bias[j, d] += sum over images of grad_sums[group, j, d, image].
void add_bias_gradient(const Problem& problem, const float* grad_sums, float* grad_bias);

}  // namespace cpu

#ifdef REMCAPS_CUDA
// Inside the passes arrays have the image as their last index ("image-last layout"). P is the batch
// padded to a multiple of 4.
//   children                          [I, D_in, P]
//   poses, sums and their gradients   [J, D_out, P]
//   couplings, logits, distances      [I, J, P]
namespace cuda {

struct Dims {
  int batch, padded;  ///< B, P
  int children, parents, child_dim, parent_dim;
};

/// sums = scale * (sum of all chunks) + bias; poses = squash(sums); agreed = agreed_before + poses.
/// All arrays are [J, D_out, P] except partial [chunks, J, D_out, P] and bias [J, D_out].
struct SquashArguments {
  const float* partial;
  int chunks;
  float scale, epsilon;
  const float* bias;           ///< or null
  const float* agreed_before;  ///< null: zero
  float *sums, *poses;
  float* agreed;  ///< null: not wanted
};

/// carried += sum of all chunks (unchanged if chunks = 0); grad_sums = dL/ds from dL/dv = carried.
struct SquashGradientArguments {
  const float* partial;
  int chunks;
  float epsilon;
  bool fresh;  ///< carried starts at zero
  const float* sums;
  float *carried, *grad_sums;
};

/// Launches the steps of one problem on one stream.
class RoutingSteps {
 public:
  RoutingSteps(const Dims& dims, cudaStream_t stream) : dims_(dims), stream_(stream) {}

  /// [B, size] -> [size, P], zero beyond the batch; and back.
  void to_image_last(int64_t size, const float* from, float* to) const;
  void to_image_first(int64_t size, const float* from, float* to) const;

  /// Softmax over the parents of logits [I, J, P] times the image's scale [P] (null: 1), rounded if
  /// there are levels. `couplings` may be the same array.
  void softmax(const float* scales, const CouplingLevels& levels, const float* logits,
               float* couplings) const;
  /// Turns dL/dc into dL/db, in place.
  void softmax_backward(const float* couplings, float* gradient) const;

  void squash(const SquashArguments& arguments) const;
  void squash_backward(const SquashGradientArguments& arguments) const;

  /// grad_bias [J, D_out] = sum over iterations and images of grad_sums [iterations, J, D_out, P].
  void bias_gradient(int iterations, const float* grad_sums, float* grad_bias) const;
  /// Couplings [I, J, P] (null: all are `uniform`) to [B, I, J].
  void give_couplings(const float* from, float uniform, float* to) const;

 protected:
  Dims dims_;
  cudaStream_t stream_;
};

}  // namespace cuda
#endif

}  // namespace remcaps::kernels
