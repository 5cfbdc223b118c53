// The project's own convolutions on the CPU, and the forms in which a trained layer keeps its
// weights for them.
//
// These functions do not check their arguments: convolution() (convolution.h) does.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

#include "remcaps/kernels/convolution/convolution.h"
#include "remcaps/kernels/convolution/sparse_convolution.h"

namespace remcaps {

/// The weight [F, C, kh, kw] of a convolution, packed as panels: a copy laid out for
/// panel_convolution().
class PackedFilters {
 public:
  /// Whether a weight can be packed: float32 on the CPU, F a multiple of the CPU's tile width.
  static bool can_pack(const torch::Tensor& weight);

  explicit PackedFilters(const torch::Tensor& weight);

  /// The sizes of the weight.
  torch::IntArrayRef sizes() const { return sizes_; }
  const kernels::cpu::Panels& panels() const { return panels_; }

 private:
  std::vector<int64_t> sizes_;
  kernels::cpu::Panels panels_;
};

/// The weight [F, C, kh, kw] of a pruned convolution, packed as its values that are not zero: a
/// copy laid out for sparse_convolution().
class SparseWeights : public kernels::cpu::SparseWeights {
 public:
  /// float32 on the CPU.
  explicit SparseWeights(const torch::Tensor& weight);

  /// The sizes of the weight.
  std::array<int64_t, 4> sizes() const {
    return {filters(), channels(), kernel_height(), kernel_width()};
  }
  /// kernels::cpu::sparse_starts(), kept until a call with maps of another shape.
  std::shared_ptr<const kernels::cpu::SparseStarts> starts(
      const kernels::ConvolutionShape& shape) const;

 private:
  struct Kept;
  std::shared_ptr<Kept> kept_;
};

/// A product with panels of the weight (kernels/convolution/convolution.h); differentiable. No
/// padding.
///   map [B, C, H, W]   weight [F, C, kh, kw]   bias [F] or undefined   -> [B, F, oh, ow]
/// Copies the map unless it is channels-last; the result is channels-last.
///
/// For a small map, laying out the weight takes longer than the product. With `packed`, the same
/// weight, this is already done; the result has the same bits. Only without gradients.
torch::Tensor panel_convolution(const torch::Tensor& map, const torch::Tensor& weight,
                                const torch::Tensor& bias, std::array<int64_t, 2> stride,
                                const PackedFilters* packed = nullptr);

/// The same with the map and the weight rounded to bfloat16, on a CPU with AMX; forward only.
/// `relu`: only the positive part. The sums and the result are float32.
torch::Tensor bf16_convolution(const torch::Tensor& map, const torch::Tensor& weight,
                               const torch::Tensor& bias, std::array<int64_t, 2> stride, bool relu);

/// A convolution of the weights that are left (kernels/convolution/sparse_convolution.h); forward
/// only. `relu`: only the positive part.
///   map [B, C, H, W]   bias [F] or undefined   -> [B, F, oh, ow]
torch::Tensor sparse_convolution(const torch::Tensor& map, const SparseWeights& weights,
                                 const torch::Tensor& bias, std::array<int64_t, 2> stride,
                                 std::array<int64_t, 2> padding, bool relu);

}  // namespace remcaps
