// A convolution: libtorch's own beside the project's, and the choice between them.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>

#include "remcaps/ops/cpu_convolution.h"
#include "remcaps/ops/kernel_path.h"

namespace remcaps {

/// The parameters of a convolution. The padding is zeros.
struct ConvolutionLayer {
  torch::Tensor weight;                  ///< [F, C / groups, kh, kw]
  torch::Tensor bias = torch::Tensor();  ///< [F] or undefined
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int64_t groups = 1;
  bool relu = false;  ///< only the positive part of the result is wanted
  /// The same weight, packed, for passes without gradients; null if the layer did not pack it.
  const PackedFilters* filters = nullptr;
  const SparseWeights* sparse = nullptr;
};

/// The implementations.
enum class ConvolutionPath {
  kPlain,        ///< libtorch's own: oneDNN or cuDNN
  kPanels,       ///< CPU: a product with panels of the weights
  kBf16Tiles,    ///< CPU with AMX: the same in bfloat16, without gradients
  kSparse,       ///< CPU: only the weights that pruning left, without gradients
  kPixels,       ///< GPU: images of few channels as one matrix product (pixel_layer.h)
  kStrips,       ///< GPU: large strided windows as products of strips (strip_convolution.h)
  kTensorCores,  ///< GPU: cuDNN in bfloat16 on channels-last copies (tensor_core_copy.h)
};
inline constexpr std::array kConvolutionPaths = {
    ConvolutionPath::kPlain,      ConvolutionPath::kPanels, ConvolutionPath::kBf16Tiles,
    ConvolutionPath::kSparse,     ConvolutionPath::kPixels, ConvolutionPath::kStrips,
    ConvolutionPath::kTensorCores};

/// "panels" and so on, for messages.
const char* path_name(ConvolutionPath path);

/// Everything the choice depends on.
struct ConvolutionFacts {
  // The layer.
  int64_t channels = 0, filters = 0, kernel_height = 0, kernel_width = 0;
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0};
  bool dense_windows = true;  ///< no dilation, one group
  torch::ScalarType weight_type = torch::kFloat32;
  bool packed_filters = false;    ///< it has PackedFilters
  std::optional<double> density;  ///< of its SparseWeights, if it has them
  // The map.
  int64_t batch = 0, height = 0, width = 0;
  torch::ScalarType map_type = torch::kFloat32;
  torch::DeviceType device = torch::kCPU;
  /// Map, weight and bias go together, and at least one window fits into the padded map.
  bool fits = true;
  // The gradients that are wanted.
  bool map_gradient = false;  ///< of the map
  bool any_gradient = false;  ///< of map, weight or bias
  // What the caller allows.
  KernelPath kernels = KernelPath::kFused;
  bool bf16 = false;      ///< bfloat16 on the CPU (Bf16Convolutions)
  bool autocast = false;  ///< bfloat16 on the GPU
  bool tf32 = false;      ///< tf32 on the GPU
  // What the machine has.
  bool amx = false;
  int64_t tile_width = 0;      ///< of the CPU's panels
  bool strip_kernels = false;  ///< CUDA kernels that cut filters of this size into strips

  /// Places of the result of all images. Padding is not counted.
  int64_t places() const;
};

ConvolutionFacts facts_of(const torch::Tensor& map, const ConvolutionLayer& layer,
                          KernelPath kernels);

/// Whether an implementation can do it at all.
bool has_kernel(ConvolutionPath path, const ConvolutionFacts& facts);

/// The fastest implementation that is allowed.
ConvolutionPath choose(const ConvolutionFacts& facts);

/// map [B, C, H, W] -> [B, F, oh, ow] by the implementation that choose() names. On a GPU under
/// bfloat16 autocast the fused result is bfloat16 and channels-last.
torch::Tensor convolution(const torch::Tensor& map, const ConvolutionLayer& layer,
                          KernelPath kernels);

/// The same by a given implementation; an error if it has no kernel for these tensors.
torch::Tensor convolution_by(ConvolutionPath path, const torch::Tensor& map,
                             const ConvolutionLayer& layer);

/// The packed forms in which a trained layer should keep its weight: both if one is faster for a
/// single image and the other for many.
struct PackedForms {
  bool filters = false, sparse = false;
};
PackedForms choose_packing(const ConvolutionLayer& layer);

/// While an object with `on` lives, convolutions of this thread may be bfloat16 on a CPU with AMX.
/// (libtorch's autocast is not used for this: Debian's oneDNN crashes in bfloat16.)
class Bf16Convolutions {
 public:
  explicit Bf16Convolutions(bool on);
  ~Bf16Convolutions();
  Bf16Convolutions(const Bf16Convolutions&) = delete;
  Bf16Convolutions& operator=(const Bf16Convolutions&) = delete;

 private:
  bool was_on_;
};

/// Whether this CPU has bfloat16 convolutions: AMX.
bool cpu_has_bf16_convolution();

}  // namespace remcaps
