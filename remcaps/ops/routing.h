// Fused dynamic and scaled-distance routing as differentiable torch operations. Their plain twins
// are in capsule/.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "remcaps/kernels/routing/few_images.h"
#include "remcaps/kernels/routing/problem.h"

namespace remcaps {

/// Checks the inputs of a routing algorithm, for the fused operations below and for the plain code.
/// Throws an Error that names the algorithm and the shapes.
///   children  [B, I, Din]
///   weight    [I, J, Dout, Din]
///   bias      [J, Dout] or undefined
void check_routing_inputs(const std::string& algorithm, const torch::Tensor& children,
                          const torch::Tensor& weight, const torch::Tensor& bias,
                          int64_t iterations);

/// Which implementation routes.
enum class RoutingPath {
  kPlain,      ///< no kernel: the plain code in capsule/
  kCpu,        ///< kernels/routing/{dynamic_routing,scaled_distance}_cpu.cpp
  kFewImages,  ///< kernels/routing/few_images_cpu.cpp
  kCuda,       ///< kernels/routing/{dynamic_routing,scaled_distance}_cuda.cu
};

#ifdef REMCAPS_CUDA
constexpr bool kHasCudaKernels = true;
#else
constexpr bool kHasCudaKernels = false;
#endif

/// What the choice depends on.
struct RoutingQuery {
  kernels::Agreement agreement = kernels::Agreement::kProduct;
  kernels::RoutingShape shape = {};
  torch::DeviceType device = torch::kCPU;
  bool float32 = true;    ///< all tensors are float32 on one device
  bool gradient = false;  ///< a backward pass may follow
  bool packed = false;    ///< PackedMatrices are given
  bool cuda_kernels = kHasCudaKernels;
};

RoutingPath choose_routing(const RoutingQuery& query);

struct FusedRoutingOptions {
  int64_t iterations = 3;
  double epsilon = 1e-6;             ///< inside the square root of squash
  bool bias_every_iteration = true;  ///< false: the bias is added in the last iteration only
  /// True: the exact gradient through all iterations. False: the published gradient, see
  /// kernels::RoutingRule::full_gradient.
  bool full_gradient = false;
  bool return_couplings = false;
  /// Levels that the couplings of the last iteration are rounded to: K + 1 edges and K centres.
  /// Empty: no rounding. The gradient takes a rounded coupling as a constant.
  std::vector<double> level_edges;
  std::vector<float> level_centres;
};

/// Whether there is a fused kernel for these tensors: float32, on the CPU or, in a CUDA build, on a
/// GPU. On a GPU scaled-distance routing has kernels only for the pose sizes of this project's
/// networks (kernels::cuda::has_scaled_distance_kernels).
bool has_fused_dynamic_routing(const torch::Tensor& children, const torch::Tensor& weight);
bool has_fused_scaled_distance_routing(const torch::Tensor& children, const torch::Tensor& weight);

/// A copy of a layer's matrices W_ij, laid out for routing a few images on the CPU.
class PackedMatrices : public kernels::cpu::ChildMatrices {
 public:
  /// `weight` is [I, J, Dout, Din], float32, on the CPU.
  explicit PackedMatrices(const torch::Tensor& weight);
};

/// Dynamic routing of a fully connected capsule layer. Inputs as in check_routing_inputs(). Returns
/// the parents' poses [B, J, Dout] and, if asked for, the couplings of the last iteration [B, I,
/// J], which carry no gradient.
///
/// The votes are not stored, with one exception: if `packed` holds the same weight, no gradient is
/// wanted and the batch is small, each image's votes are stored while it is routed.
std::tuple<torch::Tensor, torch::Tensor> fused_dynamic_routing(
    const torch::Tensor& children, const torch::Tensor& weight, const torch::Tensor& bias,
    const FusedRoutingOptions& options, const PackedMatrices* packed = nullptr);

/// What the mean of the distances is taken over.
enum class DistanceMean { kBatch, kImage };

/// Scaled-distance routing. Inputs and results as for dynamic routing.
std::tuple<torch::Tensor, torch::Tensor> fused_scaled_distance_routing(
    const torch::Tensor& children, const torch::Tensor& weight, const torch::Tensor& bias,
    const FusedRoutingOptions& options, DistanceMean mean);

}  // namespace remcaps
