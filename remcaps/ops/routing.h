// Fused dynamic and scaled-distance routing as differentiable torch operations.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "remcaps/kernels/routing/few_images_cpu.h"

namespace remcaps {

struct FusedRoutingOptions {
  int64_t iterations = 3;
  double epsilon = 1e-6;             ///< inside the square root of squash
  bool bias_every_iteration = true;  ///< false: the bias is added in the last iteration only
  /// False: the published gradient, by the last iteration's direct term for children and weight;
  /// for the bias exact (dynamic) or the last iteration's (scaled distance). True: the exact
  /// gradient of everything, through all iterations.
  bool full_gradient = false;
  bool return_couplings = false;
  /// Levels the couplings of the last iteration are rounded to: K + 1 edges and K centres (see
  /// parse_tree/quantizer.h). Empty: none. A rounded coupling is a constant to the gradient.
  std::vector<double> level_edges;
  std::vector<float> level_centres;
};

/// Whether these tensors have a fused kernel: float32, on the CPU or, in a CUDA build, on a GPU.
bool has_fused_dynamic_routing(const torch::Tensor& children, const torch::Tensor& weight);

/// The same of scaled-distance routing, which on a GPU has kernels for the pose sizes of the
/// networks here only: children of 8 dimensions and parents of 8, 16 or 32, or 16 and 16.
bool has_fused_scaled_distance_routing(const torch::Tensor& children, const torch::Tensor& weight);

/// A layer's matrices W_ij once more, laid out for the routing of few images on the CPU.
class PackedMatrices : public kernels::cpu::ChildMatrices {
 public:
  /// [I, J, D_out, D_in] float32 on the CPU, of which a copy is kept.
  explicit PackedMatrices(const torch::Tensor& weight);
};

/// Dynamic routing of a fully connected capsule layer; votes are not in memory but for few images.
///   children [B, I, D_in]   weight [I, J, D_out, D_in]   bias [J, D_out] or undefined
/// Returns the parents' poses [B, J, D_out] and, where asked for, the couplings of the last
/// iteration [B, I, J] (no gradient flows through them).
///
/// The CPU's kernel works on as many images at a time as its vectors have lanes, in the same time
/// however few there are. `packed`, the same weight, is what fewer are routed by where no gradient
/// is wanted; their votes are in memory, for as long as it takes.
std::tuple<torch::Tensor, torch::Tensor> fused_dynamic_routing(
    const torch::Tensor& children, const torch::Tensor& weight, const torch::Tensor& bias,
    const FusedRoutingOptions& options, const PackedMatrices* packed = nullptr);

/// Over what the mean of the distances is taken.
enum class DistanceMean { kBatch, kImage };

/// Scaled-distance routing, likewise.
std::tuple<torch::Tensor, torch::Tensor> fused_scaled_distance_routing(
    const torch::Tensor& children, const torch::Tensor& weight, const torch::Tensor& bias,
    const FusedRoutingOptions& options, DistanceMean mean);

}  // namespace remcaps
