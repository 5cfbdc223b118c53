#include "remcaps/ops/pixel_layer.h"

#include <torch/autograd.h>

#include "remcaps/kernels/convolution/pixel_layer.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/once_differentiable.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows are filled up to a multiple of this: 16 bytes of bfloat16, as fast products need.
constexpr int64_t kRowAlignment = 8;

int64_t filled_up(int64_t length) {
  return (length + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

struct Windows {
  Tensor rows;  // [B * h * w, C * kh * kw and a few zeros]
  int64_t height, width;
};

Windows windows_of(const PixelLayer& layer, const Tensor& images, const Tensor& weight) {
  const auto [down, right] = layer.padding;
  const kernels::ConvolutionShape shape{.batch = images.size(0),
                                        .height = images.size(2),
                                        .width = images.size(3),
                                        .channels = images.size(1),
                                        .filters = weight.size(0),
                                        .kernel_height = weight.size(2),
                                        .kernel_width = weight.size(3),
                                        .stride_y = layer.stride[0],
                                        .stride_x = layer.stride[1],
                                        .padding_y = down,
                                        .padding_x = right};
  const int64_t length = weight[0].numel();
  const Tensor rows =
      torch::empty({shape.places(), filled_up(length)}, images.options().dtype(layer.type));
#ifdef REMCAPS_CUDA
  if (images.is_cuda()) {
    const Tensor dense = images.contiguous();
    const kernels::cuda::DeviceScope scope(dense);
    kernels::cuda::windows_to_rows(shape, rows.size(1), dense.data_ptr<float>(),
                                   kernels::cuda::map_type(rows), rows.data_ptr(), scope.stream());
    return {rows, shape.out_height(), shape.out_width()};
  }
#endif
  const Tensor windows = torch::constant_pad_nd(images, {right, right, down, down})
                             .unfold(2, weight.size(2), layer.stride[0])
                             .unfold(3, weight.size(3), layer.stride[1])
                             .permute({0, 2, 3, 1, 4, 5});  // [B, h, w, C, kh, kw]
  rows.narrow(1, 0, length).view(windows.sizes()).copy_(windows);
  rows.narrow(1, length, rows.size(1) - length).zero_();
  return {rows, shape.out_height(), shape.out_width()};
}

class PixelProduct : public torch::autograd::Function<PixelProduct> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& images, const Tensor& weight,
                        const Tensor& bias, const PixelLayer& layer) {
    const Windows windows = windows_of(layer, images, weight);
    const int64_t filters = weight.size(0), length = weight[0].numel();
    const Tensor matrix = torch::constant_pad_nd(weight.reshape({filters, length}).to(layer.type),
                                                 {0, windows.rows.size(1) - length})
                              .t();
    const bool has_bias = bias.numel() > 0;
    Tensor out = !has_bias    ? torch::mm(windows.rows, matrix)
                 : layer.relu ? at::_addmm_activation(bias.to(layer.type), windows.rows, matrix)
                              : torch::addmm(bias.to(layer.type), windows.rows, matrix);
    if (layer.relu && !has_bias) out.relu_();
    context->save_for_backward({windows.rows, layer.relu ? out : Tensor()});
    context->saved_data["weight"] = weight.sizes().vec();
    context->saved_data["bias"] = has_bias;
    return out.view({images.size(0), windows.height, windows.width, filters}).permute({0, 3, 1, 2});
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("convolution");
    const variable_list saved = context->get_saved_variables();
    const Tensor &rows = saved[0], &out = saved[1];
    const std::vector<int64_t> shape = context->saved_data["weight"].toIntVector();
    Tensor gradient = grad_outputs[0]
                          .permute({0, 2, 3, 1})
                          .reshape({rows.size(0), shape[0]})
                          .to(rows.scalar_type());
    Tensor grad_bias;
    if (out.defined())
      std::tie(gradient, grad_bias) = relu_gradient(out, gradient.contiguous());
    else
      grad_bias = gradient.sum(0, /*keepdim=*/false, torch::kFloat32);
    if (!context->saved_data["bias"].toBool()) grad_bias = Tensor();
    const Tensor grad_weight = torch::mm(gradient.t(), rows)
                                   .narrow(1, 0, shape[1] * shape[2] * shape[3])
                                   .to(torch::kFloat32)
                                   .contiguous()
                                   .view(shape);
    return {Tensor(), grad_weight, grad_bias, Tensor()};
  }
};

}  // namespace

Tensor pixel_layer(const PixelLayer& layer, const Tensor& images, const Tensor& weight,
                   const Tensor& bias) {
  return PixelProduct::apply(images, weight, bias.defined() ? bias : torch::empty({0}), layer);
}

}  // namespace remcaps
