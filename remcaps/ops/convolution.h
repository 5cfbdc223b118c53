// The convolutions in front of capsules on the CPU, as a differentiable torch operation.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

#include "remcaps/kernels/convolution/convolution.h"

namespace remcaps {

/// Whether a convolution of these is to be differentiated. The bias may be undefined.
bool needs_gradient_of_any(const torch::Tensor& map, const torch::Tensor& weight,
                           const torch::Tensor& bias);

/// Whether fast_convolution() has a kernel for these tensors: float32 on the CPU, filters (and,
/// where the map needs a gradient, channels) in whole tiles of this CPU's vectors. Maps of few
/// channels are taken only where they need no gradient: images.
bool has_fast_convolution(const torch::Tensor& map, const torch::Tensor& weight);

/// Whether PackedFilters can be made of a weight: float32 on the CPU, filters in whole tiles of
/// this CPU's vectors.
bool has_packed_filters(const torch::Tensor& weight);

/// The weight of a convolution once more, laid out for fast_convolution().
class PackedFilters {
 public:
  /// [F, C, kh, kw], of which a copy is kept.
  explicit PackedFilters(const torch::Tensor& weight);

  /// Of the weight.
  torch::IntArrayRef sizes() const { return sizes_; }
  const kernels::cpu::Panels& panels() const { return panels_; }

 private:
  std::vector<int64_t> sizes_;
  kernels::cpu::Panels panels_;
};

/// A convolution without padding, dilation and groups.
///   map [B, C, H, W]   weight [F, C, kh, kw]   bias [F] or undefined   -> [B, F, oh, ow]
/// Works on channels-last maps (others are copied) and returns one.
///
/// To lay the weight out takes longer than the rest where a map has few places. `packed`, the same
/// weight, is read instead where no gradient is wanted; the result is the same, bit for bit.
torch::Tensor fast_convolution(const torch::Tensor& map, const torch::Tensor& weight,
                               const torch::Tensor& bias, std::array<int64_t, 2> stride,
                               const PackedFilters* packed = nullptr);

/// While it lives, this thread's convolutions may be bfloat16 on a CPU that has it. (Not libtorch's
/// own autocast: Debian's oneDNN crashes in bfloat16.) Does nothing where `on` is false.
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

/// Whether bf16_convolution() is wanted and has a kernel for these tensors: float32 on such a CPU,
/// no gradient.
bool has_bf16_convolution(const torch::Tensor& map, const torch::Tensor& weight,
                          const torch::Tensor& bias);

/// fast_convolution() of a map and weights rounded to bfloat16, for any number of filters; `relu`
/// keeps the positive part. The sums and what it returns are float32.
torch::Tensor bf16_convolution(const torch::Tensor& map, const torch::Tensor& weight,
                               const torch::Tensor& bias, std::array<int64_t, 2> stride, bool relu);

}  // namespace remcaps
