#include "remcaps/ops/cpu_convolution.h"

#include <torch/autograd.h>

#include <mutex>

#include "remcaps/base/error.h"
#include "remcaps/kernels/convolution/bf16_convolution.h"
#include "remcaps/kernels/convolution/tile_product.h"
#include "remcaps/ops/once_differentiable.h"

namespace remcaps {
namespace {

using kernels::ConvolutionShape;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In the order [B, H, W, C], aligned for the vectors.
Tensor as_channels_last(const Tensor& map) {
  const Tensor dense = map.contiguous(torch::MemoryFormat::ChannelsLast);
  return reinterpret_cast<uintptr_t>(dense.data_ptr()) % 64 == 0 ? dense : dense.clone();
}

ConvolutionShape filter_shape(const Tensor& weight) {
  return {.channels = weight.size(1),
          .filters = weight.size(0),
          .kernel_height = weight.size(2),
          .kernel_width = weight.size(3)};
}

ConvolutionShape shape_of(const Tensor& map, const Tensor& weight, std::array<int64_t, 2> stride) {
  ConvolutionShape shape = filter_shape(weight);
  shape.batch = map.size(0);
  shape.height = map.size(2);
  shape.width = map.size(3);
  shape.stride_y = stride[0];
  shape.stride_x = stride[1];
  return shape;
}

kernels::MapStrides strides_of(const Tensor& map) {
  return {.image = map.stride(0),
          .channel = map.stride(1),
          .row = map.stride(2),
          .pixel = map.stride(3)};
}

// Null for an undefined or empty bias.
const float* floats_of(const Tensor& bias) {
  return bias.defined() && bias.numel() > 0 ? bias.data_ptr<float>() : nullptr;
}

Tensor dense_bias(const Tensor& bias) {
  return bias.defined() ? bias.contiguous() : Tensor();
}

Tensor empty_result(const ConvolutionShape& shape, const Tensor& map) {
  return torch::empty(
      {shape.batch, shape.filters, shape.out_height(), shape.out_width()},
      map.options().requires_grad(false).memory_format(torch::MemoryFormat::ChannelsLast));
}

Tensor multiply_panels(const ConvolutionShape& shape, const Tensor& map,
                       const kernels::cpu::Panels& panels, const Tensor& bias) {
  const Tensor out = empty_result(shape, map);
  kernels::cpu::convolution(shape, map.data_ptr<float>(), panels, floats_of(bias),
                            out.data_ptr<float>());
  return out;
}

// map channels-last, weight dense, bias [F] or empty.
class PanelConvolution : public torch::autograd::Function<PanelConvolution> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& map, const Tensor& weight,
                        const Tensor& bias, int64_t stride_y, int64_t stride_x) {
    const ConvolutionShape shape = shape_of(map, weight, {stride_y, stride_x});
    const kernels::cpu::Panels panels(shape, weight.data_ptr<float>(),
                                      /*columns_are_filters=*/true);
    context->save_for_backward({map, weight, bias});
    context->saved_data["stride_y"] = stride_y;
    context->saved_data["stride_x"] = stride_x;
    return multiply_panels(shape, map, panels, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("convolution");
    const variable_list inputs = context->get_saved_variables();
    const Tensor &map = inputs[0], &weight = inputs[1], &bias = inputs[2];
    const ConvolutionShape shape = shape_of(
        map, weight,
        {context->saved_data["stride_y"].toInt(), context->saved_data["stride_x"].toInt()});
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

// The windows of a map as the channels of a map of one row: [B, C * kh * kw, 1, oh * ow],
// channels-last.
Tensor unfold(const ConvolutionShape& shape, const Tensor& map) {
  const ConvolutionShape rows = kernels::cpu::unfolded(shape);
  const Tensor windows =
      torch::empty({rows.batch, 1, rows.width, rows.channels}, map.options().requires_grad(false));
  kernels::cpu::unfold_windows(shape, strides_of(map), map.data_ptr<float>(),
                               windows.data_ptr<float>());
  return windows.permute({0, 3, 1, 2});
}

kernels::cpu::Panels packed_panels(const Tensor& weight) {
  check(PackedFilters::can_pack(weight),
        "packed filters: weight [{}]; expected float32 [F, C, kh, kw] on the CPU, F a multiple of "
        "{}",
        fmt::join(weight.sizes(), ", "), kernels::tile_width());
  const Tensor dense = weight.detach().contiguous();
  return kernels::cpu::filter_panels(filter_shape(dense), dense.data_ptr<float>());
}

kernels::cpu::SparseWeights packed_sparse(const Tensor& weight) {
  check(weight.is_cpu() && weight.scalar_type() == torch::kFloat32 && weight.dim() == 4,
        "sparse weights: [{}]; expected float32 [F, C, kh, kw] on the CPU",
        fmt::join(weight.sizes(), ", "));
  const Tensor dense = weight.detach().contiguous();
  return {filter_shape(dense), dense.data_ptr<float>()};
}

}  // namespace

bool PackedFilters::can_pack(const Tensor& weight) {
  return weight.is_cpu() && weight.scalar_type() == torch::kFloat32 && weight.dim() == 4 &&
         weight.size(0) % kernels::tile_width() == 0;
}

PackedFilters::PackedFilters(const Tensor& weight)
    : sizes_(weight.sizes().vec()), panels_(packed_panels(weight)) {}

struct SparseWeights::Kept {
  std::mutex mutex;
  ConvolutionShape shape;
  std::shared_ptr<const kernels::cpu::SparseStarts> starts;
};

SparseWeights::SparseWeights(const Tensor& weight)
    : kernels::cpu::SparseWeights(packed_sparse(weight)), kept_(std::make_shared<Kept>()) {}

std::shared_ptr<const kernels::cpu::SparseStarts> SparseWeights::starts(
    const ConvolutionShape& shape) const {
  ConvolutionShape of_one = shape;
  of_one.batch = 1;
  const std::lock_guard lock(kept_->mutex);
  if (kept_->starts == nullptr || kept_->shape != of_one) {
    kept_->starts = std::make_shared<const kernels::cpu::SparseStarts>(
        kernels::cpu::sparse_starts(of_one, *this));
    kept_->shape = of_one;
  }
  return kept_->starts;
}

Tensor panel_convolution(const Tensor& map, const Tensor& weight, const Tensor& bias,
                         std::array<int64_t, 2> stride, const PackedFilters* packed) {
  const ConvolutionShape shape = shape_of(map, weight, stride);
  const bool unfolds = kernels::cpu::has_short_rows(shape);
  const Tensor rows = unfolds ? unfold(shape, map) : as_channels_last(map);
  Tensor out;
  if (packed != nullptr) {
    out = multiply_panels(unfolds ? kernels::cpu::unfolded(shape) : shape, rows, packed->panels(),
                          dense_bias(bias));
  } else {
    const Tensor dense = weight.contiguous();
    const Tensor filters = unfolds ? dense.view({dense.size(0), -1, 1, 1}) : dense;
    const Tensor given_bias = bias.defined() ? bias.contiguous() : torch::empty({0}, map.options());
    out = unfolds ? PanelConvolution::apply(rows, filters, given_bias, 1, 1)
                  : PanelConvolution::apply(rows, filters, given_bias, stride[0], stride[1]);
  }
  return unfolds ? out.view({shape.batch, shape.filters, shape.out_height(), shape.out_width()})
                 : out;
}

Tensor bf16_convolution(const Tensor& map, const Tensor& weight, const Tensor& bias,
                        std::array<int64_t, 2> stride, bool relu) {
  const ConvolutionShape shape = shape_of(map, weight, stride);
  const Tensor channels_last = map.contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensor dense_weight = weight.contiguous(), given_bias = dense_bias(bias);
  const Tensor out = empty_result(shape, map);
  kernels::cpu::bf16_convolution(shape, *kernels::amx_tiles(), channels_last.data_ptr<float>(),
                                 dense_weight.data_ptr<float>(), floats_of(given_bias), relu,
                                 out.data_ptr<float>());
  return out;
}

Tensor sparse_convolution(const Tensor& map, const SparseWeights& weights, const Tensor& bias,
                          std::array<int64_t, 2> stride, std::array<int64_t, 2> padding,
                          bool relu) {
  const ConvolutionShape shape{.batch = map.size(0),
                               .height = map.size(2),
                               .width = map.size(3),
                               .channels = weights.channels(),
                               .filters = weights.filters(),
                               .kernel_height = weights.kernel_height(),
                               .kernel_width = weights.kernel_width(),
                               .stride_y = stride[0],
                               .stride_x = stride[1],
                               .padding_y = padding[0],
                               .padding_x = padding[1]};
  const Tensor given_bias = dense_bias(bias);
  const Tensor out =
      torch::empty({shape.batch, shape.filters, shape.out_height(), shape.out_width()},
                   map.options().requires_grad(false));
  kernels::cpu::sparse_convolution(shape, strides_of(map), map.data_ptr<float>(), weights,
                                   *weights.starts(shape), floats_of(given_bias), relu,
                                   out.data_ptr<float>());
  return out;
}

}  // namespace remcaps
