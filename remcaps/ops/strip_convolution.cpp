#include "remcaps/ops/strip_convolution.h"

#include <torch/autograd.h>

#include "remcaps/kernels/convolution/layout.h"
#include "remcaps/kernels/convolution/strip_convolution.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/once_differentiable.h"
#include "remcaps/ops/tensor_core_copy.h"
#include "remcaps/torch/compat.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using kernels::ConvolutionShape;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

ConvolutionShape strip_shape(const StripConvolution& layer, const Tensor& map,
                             torch::IntArrayRef weight) {
  return {.batch = map.size(0),
          .height = map.size(2),
          .width = map.size(3),
          .channels = map.size(1),
          .filters = weight[0],
          .kernel_height = weight[2],
          .kernel_width = weight[3],
          .stride_y = layer.stride[0],
          .stride_x = layer.stride[1],
          .padding_y = layer.padding[0],
          .padding_x = layer.padding[1]};
}

// The number of filter rows in a phase: y = phase, phase + stride, ...
int64_t taps_of(const ConvolutionShape& shape, int64_t phase) {
  return (shape.kernel_height - phase + shape.stride_y - 1) / shape.stride_y;
}

// The number of rows of the padded map that the filter rows of a phase meet.
int64_t strips_of(const ConvolutionShape& shape, int64_t phase) {
  return taps_of(shape, phase) + shape.out_height() - 1;
}

#ifdef REMCAPS_CUDA
kernels::cuda::RowsShape rows_shape(const ConvolutionShape& shape, int64_t filters) {
  return {.batch = shape.batch,
          .rows = shape.out_height(),
          .columns = shape.out_width(),
          .channels = filters};
}
#endif

// [phases, taps of the first phase, F, kw * C], in the type of the map.
Tensor filters_by_phase(const ConvolutionShape& shape, const Tensor& weight,
                        torch::ScalarType type) {
  const int64_t phases = shape.stride_y, filters = weight.size(0);
  const Tensor ordered =
      torch::empty({phases, taps_of(shape, 0), filters, shape.kernel_width * shape.channels},
                   weight.options().dtype(type).requires_grad(false));
#ifdef REMCAPS_CUDA
  if (weight.is_cuda()) {
    const Tensor dense = weight.contiguous();
    const kernels::cuda::DeviceScope scope(dense);
    kernels::cuda::filters_by_phase({.count = filters,
                                     .channels = shape.channels,
                                     .height = shape.kernel_height,
                                     .width = shape.kernel_width},
                                    phases, dense.data_ptr<float>(),
                                    kernels::cuda::map_type(ordered), ordered.data_ptr(),
                                    scope.stream());
    return ordered;
  }
#endif
  const Tensor rows = weight.permute({2, 0, 3, 1}).flatten(2);  // [kh, F, kw * C]
  for (int64_t phase = 0; phase < phases; ++phase)
    ordered[phase].narrow(0, 0, taps_of(shape, phase)).copy_(rows.slice(0, phase, {}, phases));
  return ordered;
}

// [strips of the phase, B * columns, kw * C]
Tensor cut_strips(const ConvolutionShape& shape, int64_t phase, const Tensor& map) {
  const int64_t count = strips_of(shape, phase);
  const std::vector<int64_t> sizes = {count, shape.batch * shape.out_width(),
                                      shape.kernel_width * shape.channels};
#ifdef REMCAPS_CUDA
  if (map.is_cuda()) {
    const Tensor strips = torch::empty(sizes, map.options());
    const kernels::cuda::DeviceScope scope(map);
    kernels::cuda::cut_strips(shape, phase, count, kernels::cuda::map_type(map), map.data_ptr(),
                              strips.data_ptr(), scope.stream());
    return strips;
  }
#endif
  return torch::constant_pad_nd(
             map, {shape.padding_x, shape.padding_x, shape.padding_y, shape.padding_y})
      .slice(2, phase, phase + (count - 1) * shape.stride_y + 1, shape.stride_y)
      .unfold(3, shape.kernel_width, shape.stride_x)
      .permute({2, 0, 3, 4, 1})  // [strips, B, columns, kw, C]
      .reshape(sizes);
}

// The sum of parts [kh, rows * B * columns, F], plus the bias, as a map.
Tensor sum_parts(const ConvolutionShape& shape, const Tensor& parts, const Tensor& bias,
                 torch::ScalarType type) {
  const int64_t rows = shape.out_height(), columns = shape.out_width(), filters = parts.size(2);
#ifdef REMCAPS_CUDA
  if (parts.is_cuda()) {
    const Tensor sum =
        torch::empty({shape.batch, rows, columns, filters}, parts.options().dtype(type));
    const kernels::cuda::DeviceScope scope(parts);
    kernels::cuda::sum_parts(rows_shape(shape, filters), parts.size(0), parts.data_ptr<float>(),
                             bias.defined() ? bias.contiguous().data_ptr<float>() : nullptr,
                             kernels::cuda::map_type(sum), sum.data_ptr(), scope.stream());
    return sum.permute({0, 3, 1, 2});
  }
#endif
  Tensor sum = parts.sum(0).view({rows, shape.batch, columns, filters});
  if (bias.defined()) sum = sum + bias;
  return sum.to(type).permute({1, 3, 0, 2}).contiguous(torch::MemoryFormat::ChannelsLast);
}

// The rows of the gradient side by side, the last one first, between zeros:
// [B * columns, (rows + 2 * margin) * F].
Tensor spread_rows(const ConvolutionShape& shape, int64_t margin, const Tensor& gradient) {
  const int64_t filters = gradient.size(1), length = (shape.out_height() + 2 * margin) * filters;
#ifdef REMCAPS_CUDA
  if (gradient.is_cuda()) {
    const Tensor spread =
        torch::empty({shape.batch * shape.out_width(), length}, gradient.options());
    const kernels::cuda::DeviceScope scope(gradient);
    kernels::cuda::spread_rows(rows_shape(shape, filters), margin,
                               kernels::cuda::map_type(gradient), gradient.data_ptr(),
                               spread.data_ptr(), scope.stream());
    return spread;
  }
#endif
  return torch::constant_pad_nd(gradient.flip({2}).permute({0, 3, 2, 1}), {0, 0, margin, margin})
      .reshape({-1, length});
}

// Adds up the strips in the rows of `map` that belong to the phase. The last strip comes first.
void fold_strips(const ConvolutionShape& shape, int64_t phase, const Tensor& strips,
                 const Tensor& map) {
#ifdef REMCAPS_CUDA
  if (map.is_cuda()) {
    const kernels::cuda::DeviceScope scope(map);
    kernels::cuda::fold_strips(shape, phase, strips.size(0), kernels::cuda::map_type(map),
                               strips.data_ptr(), map.data_ptr(), scope.stream());
    return;
  }
#endif
  const int64_t columns = shape.out_width(), step = shape.stride_x, down = shape.stride_y;
  const Tensor folded = torch::zeros({shape.batch, shape.height + 2 * shape.padding_y,
                                      shape.width + 2 * shape.padding_x, shape.channels},
                                     map.options());
  const Tensor rows = folded.slice(1, phase, {}, down).narrow(1, 0, strips.size(0));
  const Tensor parts =
      strips.flip({0}).view({-1, shape.batch, columns, shape.kernel_width, shape.channels});
  for (int64_t x = 0; x < shape.kernel_width; ++x)
    rows.slice(2, x, x + (columns - 1) * step + 1, step).add_(parts.select(3, x).transpose(0, 1));
  const int64_t first = ((phase - shape.padding_y) % down + down) % down;
  map.slice(2, first, {}, down)
      .copy_(folded.narrow(1, shape.padding_y, shape.height)
                 .narrow(2, shape.padding_x, shape.width)
                 .permute({0, 3, 1, 2})
                 .slice(2, first, {}, down));
}

Tensor map_gradient(const ConvolutionShape& shape, const Tensor& filters, const Tensor& gradient) {
  const int64_t count = filters.size(2), length = filters.size(3), places = shape.out_width();
  const int64_t most_taps = taps_of(shape, 0), margin = most_taps - 1;
  const Tensor spread = spread_rows(shape, margin, gradient);
  const Tensor map =
      torch::empty({shape.batch, shape.channels, shape.height, shape.width},
                   gradient.options().memory_format(torch::MemoryFormat::ChannelsLast));
  for (int64_t phase = 0; phase < shape.stride_y; ++phase) {
    const int64_t taps = taps_of(shape, phase), strips = strips_of(shape, phase);
    // Strip i is the sum over taps q of gradient row i - q times tap q. These rows are neighbours
    // in `spread`, with zeros for missing rows; the next strip begins one row earlier.
    const Tensor runs = spread.as_strided({strips, shape.batch * places, taps * count},
                                          {count, spread.size(1), 1}, (most_taps - taps) * count);
    const Tensor matrix = filters[phase].narrow(0, 0, taps).view({1, taps * count, length});
    fold_strips(shape, phase, torch::bmm(runs, matrix.expand({strips, -1, -1})), map);
  }
  return map;
}

// libtorch's own: cuDNN is fast here.
Tensor weight_gradient(const StripConvolution& layer, const Tensor& map, const Tensor& gradient,
                       torch::IntArrayRef weight) {
  constexpr auto kFormat = torch::MemoryFormat::ChannelsLast;
  const Tensor shape_only = torch::empty(weight, map.options().memory_format(kFormat));
  const auto gradients = torch::convolution_backward(gradient, map, shape_only, {}, layer.stride,
                                                     layer.padding, {1, 1}, /*transposed=*/false,
                                                     {0, 0}, /*groups=*/1, {false, true, false});
  return plain_copy(std::get<1>(gradients).contiguous(kFormat));
}

class StripProducts : public torch::autograd::Function<StripProducts> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& given, const Tensor& weight,
                        const Tensor& bias, const StripConvolution& layer) {
    const Tensor map = given.contiguous(torch::MemoryFormat::ChannelsLast);
    const ConvolutionShape shape = strip_shape(layer, map, weight.sizes());
    const Tensor filters = filters_by_phase(shape, weight, map.scalar_type());
    const int64_t windows = shape.places(), length = filters.size(3);
    const Tensor parts = torch::empty({shape.kernel_height, windows, weight.size(0)},
                                      map.options().dtype(torch::kFloat32));
    int64_t done = 0;
    for (int64_t phase = 0; phase < shape.stride_y; ++phase) {
      const int64_t taps = taps_of(shape, phase);
      const Tensor strips = cut_strips(shape, phase, map);
      // Every tap begins one strip later and takes one strip for each row of windows.
      const Tensor stacks =
          strips.as_strided({taps, windows, length}, {strips.stride(0), length, 1});
      products_in_float32(stacks, filters[phase].narrow(0, 0, taps).transpose(1, 2),
                          parts.narrow(0, done, taps));
      done += taps;
    }
    context->save_for_backward({map, filters});
    context->saved_data["weight"] = weight.sizes().vec();
    context->saved_data["bias"] = bias.numel() > 0;
    context->saved_data["layer"] =
        std::vector<int64_t>{layer.stride[0], layer.stride[1], layer.padding[0], layer.padding[1]};
    return sum_parts(shape, parts, bias.numel() > 0 ? bias : Tensor(), map.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("convolution");
    const variable_list saved = context->get_saved_variables();
    const Tensor &map = saved[0], &filters = saved[1];
    const std::vector<int64_t> weight = context->saved_data["weight"].toIntVector();
    const std::vector<int64_t> given = context->saved_data["layer"].toIntVector();
    const StripConvolution layer{{given[0], given[1]}, {given[2], given[3]}};
    const Tensor gradient =
        grad_outputs[0].to(map.scalar_type()).contiguous(torch::MemoryFormat::ChannelsLast);
    Tensor grad_map, grad_weight, grad_bias;
    // The map's gradient comes first: its strips need memory that the weights' gradient keeps.
    if (context->needs_input_grad(0))
      grad_map = map_gradient(strip_shape(layer, map, weight), filters, gradient);
    if (context->needs_input_grad(1)) grad_weight = weight_gradient(layer, map, gradient, weight);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2))
      grad_bias = channel_sums(gradient);
    return {grad_map, grad_weight, grad_bias, Tensor()};
  }
};

}  // namespace

bool has_strip_kernels([[maybe_unused]] const Tensor& weight) {
#ifdef REMCAPS_CUDA
  return kernels::cuda::has_filters_by_phase({.count = weight.size(0),
                                              .channels = weight.size(1),
                                              .height = weight.size(2),
                                              .width = weight.size(3)});
#else
  return false;
#endif
}

Tensor strip_convolution(const StripConvolution& layer, const Tensor& map, const Tensor& weight,
                         const Tensor& bias) {
  return StripProducts::apply(map, weight, bias.defined() ? bias : torch::empty({0}), layer);
}

}  // namespace remcaps
