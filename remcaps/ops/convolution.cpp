#include "remcaps/ops/convolution.h"

#include <fmt/ranges.h>
#include <torch/autograd.h>

#include "remcaps/base/error.h"
#include "remcaps/kernels/convolution/bf16_convolution.h"
#include "remcaps/kernels/convolution/convolution.h"
#include "remcaps/kernels/convolution/tile_product.h"

namespace remcaps {
namespace {

using kernels::ConvolutionShape;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A row of a kernel on fewer floats is too short a product: all of its rows are put into one.
constexpr int64_t kShortRow = 64;

thread_local bool bf16_is_wanted = false;

bool has_short_rows(const Tensor& weight) {
  return weight.size(1) * weight.size(3) < kShortRow;
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64 == 0;
}

// In the order [B, H, W, C] and where the vectors want it.
Tensor as_channels_last(const Tensor& map) {
  const Tensor dense = map.contiguous(torch::MemoryFormat::ChannelsLast);
  return is_aligned(dense) ? dense : dense.clone();
}

// The filters of [F, C, kh, kw], each as one row of C * kh * kw where its rows are short.
Tensor with_long_rows(const Tensor& weight) {
  const Tensor dense = weight.contiguous();
  return has_short_rows(weight) ? dense.view({weight.size(0), weight[0].numel(), 1, 1}) : dense;
}

kernels::cpu::Panels panels_of_filters(const Tensor& weight) {
  return {{.channels = weight.size(1),
           .filters = weight.size(0),
           .kernel_height = weight.size(2),
           .kernel_width = weight.size(3)},
          weight.data_ptr<float>(),
          /*columns_are_filters=*/true};
}

ConvolutionShape convolution_shape(const Tensor& map, const Tensor& weight, int64_t stride_y,
                                   int64_t stride_x) {
  return {.batch = map.size(0),
          .height = map.size(2),
          .width = map.size(3),
          .channels = map.size(1),
          .filters = weight.size(0),
          .kernel_height = weight.size(2),
          .kernel_width = weight.size(3),
          .stride_y = stride_y,
          .stride_x = stride_x};
}

Tensor empty_result(const ConvolutionShape& shape, const Tensor& map) {
  return torch::empty(
      {shape.batch, shape.filters, shape.out_height(), shape.out_width()},
      map.options().requires_grad(false).memory_format(torch::MemoryFormat::ChannelsLast));
}

bool fits_in(const Tensor& weight, const Tensor& map) {
  return map.size(1) == weight.size(1) && map.size(2) >= weight.size(2) &&
         map.size(3) >= weight.size(3);
}

bool are_float32_on_cpu(const Tensor& map, const Tensor& weight) {
  return map.is_cpu() && weight.is_cpu() && map.scalar_type() == torch::kFloat32 &&
         weight.scalar_type() == torch::kFloat32 && map.dim() == 4 && weight.dim() == 4 &&
         map.size(0) > 0;
}

// By the panels of a weight of this shape. The bias may be empty.
Tensor convolved_by(const kernels::cpu::Panels& panels, const ConvolutionShape& shape,
                    const Tensor& map, const Tensor& bias) {
  const Tensor out = empty_result(shape, map);
  kernels::cpu::convolution(shape, map.data_ptr<float>(), panels,
                            bias.numel() > 0 ? bias.data_ptr<float>() : nullptr,
                            out.data_ptr<float>());
  return out;
}

class FastConvolution : public torch::autograd::Function<FastConvolution> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& map, const Tensor& weight,
                        const Tensor& bias, int64_t stride_y, int64_t stride_x) {
    const ConvolutionShape shape = convolution_shape(map, weight, stride_y, stride_x);
    const Tensor out = convolved_by(panels_of_filters(weight), shape, map, bias);
    context->save_for_backward({map, weight, bias});
    context->saved_data["stride_y"] = stride_y;
    context->saved_data["stride_x"] = stride_x;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list inputs = context->get_saved_variables();
    const Tensor &map = inputs[0], &weight = inputs[1], &bias = inputs[2];
    const ConvolutionShape shape =
        convolution_shape(map, weight, context->saved_data["stride_y"].toInt(),
                          context->saved_data["stride_x"].toInt());
    const Tensor grad_out = as_channels_last(grad_outputs[0]);
    Tensor grad_map, grad_weight, grad_bias;
    if (map.requires_grad()) {
      grad_map = torch::empty_like(map, torch::MemoryFormat::ChannelsLast);
      kernels::cpu::convolution_map_gradient(
          shape, weight.data_ptr<float>(), grad_out.data_ptr<float>(), grad_map.data_ptr<float>());
    }
    if (weight.requires_grad()) {
      grad_weight = torch::empty_like(weight);
      kernels::cpu::convolution_weight_gradient(
          shape, map.data_ptr<float>(), grad_out.data_ptr<float>(), grad_weight.data_ptr<float>());
    }
    if (bias.numel() > 0 && bias.requires_grad()) grad_bias = grad_out.sum({0, 2, 3});
    return {grad_map, grad_weight, grad_bias, Tensor(), Tensor()};
  }
};

// The floats each place of the result sees, as channels: [B, C * kh * kw, 1, oh * ow].
Tensor unfolded(const Tensor& map, const Tensor& weight, std::array<int64_t, 2> stride) {
  const Tensor windows = map.unfold(2, weight.size(2), stride[0])
                             .unfold(3, weight.size(3), stride[1]);  // [B, C, oh, ow, kh, kw]
  return windows.permute({0, 2, 3, 1, 4, 5})
      .reshape({map.size(0), 1, windows.size(2) * windows.size(3), weight[0].numel()})
      .permute({0, 3, 1, 2});
}

kernels::cpu::Panels checked_panels(const Tensor& weight) {
  check(has_packed_filters(weight),
        "packed filters: weight [{}]; expected float32 [F, C, kh, kw] on the CPU, F a multiple of "
        "{}",
        fmt::join(weight.sizes(), ", "), kernels::tile_width());
  return panels_of_filters(with_long_rows(weight.detach()));
}

}  // namespace

bool needs_gradient_of_any(const Tensor& map, const Tensor& weight, const Tensor& bias) {
  return torch::GradMode::is_enabled() && (map.requires_grad() || weight.requires_grad() ||
                                           (bias.defined() && bias.requires_grad()));
}

bool has_fast_convolution(const Tensor& map, const Tensor& weight) {
  const int64_t width = kernels::tile_width();
  const bool needs_map_gradient = torch::GradMode::is_enabled() && map.requires_grad();
  return are_float32_on_cpu(map, weight) && weight.size(0) % width == 0 &&
         (has_short_rows(weight) ? !needs_map_gradient
                                 : !needs_map_gradient || weight.size(1) % width == 0);
}

bool has_packed_filters(const Tensor& weight) {
  return weight.is_cpu() && weight.scalar_type() == torch::kFloat32 && weight.dim() == 4 &&
         weight.size(0) % kernels::tile_width() == 0;
}

PackedFilters::PackedFilters(const Tensor& weight)
    : sizes_(weight.sizes().vec()), panels_(checked_panels(weight)) {}

Tensor fast_convolution(const Tensor& map, const Tensor& weight, const Tensor& bias,
                        std::array<int64_t, 2> stride, const PackedFilters* packed) {
  check(has_fast_convolution(map, weight) && fits_in(weight, map),
        "fast convolution: map [{}] and weight [{}]; expected float32 [B, C, H, W] and [F, C, kh, "
        "kw] on the CPU, F a multiple of {}",
        fmt::join(map.sizes(), ", "), fmt::join(weight.sizes(), ", "), kernels::tile_width());
  check(packed == nullptr || packed->sizes() == weight.sizes(),
        "fast convolution: filters packed are not those of weight [{}]",
        fmt::join(weight.sizes(), ", "));
  const Tensor given_bias = bias.defined() ? bias.contiguous() : torch::empty({0}, map.options());
  const bool by_packed = packed != nullptr && !needs_gradient_of_any(map, weight, bias);
  const auto convolved = [&](const Tensor& seen, const Tensor& filters, std::array<int64_t, 2> by) {
    if (by_packed)
      return convolved_by(packed->panels(), convolution_shape(seen, filters, by[0], by[1]), seen,
                          given_bias);
    return FastConvolution::apply(seen, filters, given_bias, by[0], by[1]);
  };
  const Tensor filters = with_long_rows(weight);
  if (!has_short_rows(weight)) return convolved(as_channels_last(map), filters, stride);
  const Tensor out = convolved(as_channels_last(unfolded(map, weight, stride)), filters, {1, 1});
  return out.view({out.size(0), out.size(1), (map.size(2) - weight.size(2)) / stride[0] + 1,
                   (map.size(3) - weight.size(3)) / stride[1] + 1});
}

Bf16Convolutions::Bf16Convolutions(bool on) : was_on_(bf16_is_wanted) {
  if (on) bf16_is_wanted = true;
}

Bf16Convolutions::~Bf16Convolutions() {
  bf16_is_wanted = was_on_;
}

bool cpu_has_bf16_convolution() {
  return kernels::amx_tiles() != nullptr;
}

bool has_bf16_convolution(const Tensor& map, const Tensor& weight, const Tensor& bias) {
  return bf16_is_wanted && cpu_has_bf16_convolution() &&
         !needs_gradient_of_any(map, weight, bias) && are_float32_on_cpu(map, weight);
}

Tensor bf16_convolution(const Tensor& map, const Tensor& weight, const Tensor& bias,
                        std::array<int64_t, 2> stride, bool relu) {
  check(cpu_has_bf16_convolution() && are_float32_on_cpu(map, weight) && fits_in(weight, map),
        "bf16 convolution: map [{}] and weight [{}]; expected float32 [B, C, H, W] and [F, C, kh, "
        "kw] on a CPU with AMX",
        fmt::join(map.sizes(), ", "), fmt::join(weight.sizes(), ", "));
  const ConvolutionShape shape = convolution_shape(map, weight, stride[0], stride[1]);
  const Tensor dense_map = map.contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensor dense_weight = weight.contiguous();
  const Tensor dense_bias = bias.defined() ? bias.contiguous() : Tensor();
  const Tensor out = empty_result(shape, map);
  kernels::cpu::bf16_convolution(
      shape, *kernels::amx_tiles(), dense_map.data_ptr<float>(), dense_weight.data_ptr<float>(),
      bias.defined() ? dense_bias.data_ptr<float>() : nullptr, relu, out.data_ptr<float>());
  return out;
}

}  // namespace remcaps
