#include "remcaps/ops/channel_bias.h"

#include <torch/autograd.h>

#include "remcaps/kernels/convolution/channel_bias.h"
#include "remcaps/ops/once_differentiable.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

#ifdef REMCAPS_CUDA
bool has_kernels(const Tensor& map) {
  return map.is_cuda() && kernels::cuda::has_bias_kernels(map.size(1)) &&
         (map.scalar_type() == torch::kFloat32 || map.scalar_type() == torch::kBFloat16);
}

bool is_matrix(const Tensor& map) {
  return map.is_contiguous(torch::MemoryFormat::ChannelsLast);
}

Tensor floats(const Tensor& like, int64_t count) {
  return torch::empty({count}, like.options().dtype(torch::kFloat32));
}
#endif

class ChannelBias : public torch::autograd::Function<ChannelBias> {
 public:
  static Tensor forward(AutogradContext* context, Tensor map, const Tensor& bias) {
#ifdef REMCAPS_CUDA
    if (has_kernels(map) && is_matrix(map) && bias.scalar_type() == torch::kFloat32) {
      const Tensor dense = bias.contiguous();
      const kernels::cuda::DeviceScope scope(map);
      kernels::cuda::add_bias(map.numel() / map.size(1), map.size(1), kernels::cuda::map_type(map),
                              dense.data_ptr<float>(), map.data_ptr(), scope.stream());
      context->mark_dirty({map});
      return map;
    }
#endif
    map.add_(bias.view({1, -1, 1, 1}));
    context->mark_dirty({map});
    return map;
  }

  static variable_list backward(AutogradContext*, const variable_list& grad_outputs) {
    check_once_differentiable("bias of channels");
    return {grad_outputs[0], channel_sums(grad_outputs[0])};
  }
};

}  // namespace

Tensor add_channel_bias(const Tensor& map, const Tensor& bias) {
  return ChannelBias::apply(map, bias);
}

Tensor channel_sums(const Tensor& gradient) {
#ifdef REMCAPS_CUDA
  if (has_kernels(gradient)) {
    const Tensor dense = gradient.contiguous(torch::MemoryFormat::ChannelsLast);
    const int64_t columns = dense.size(1), rows = dense.numel() / columns;
    const Tensor sums = floats(dense, columns);
    const Tensor partial = floats(dense, kernels::cuda::column_sums_floats(rows, columns));
    const kernels::cuda::DeviceScope scope(dense);
    kernels::cuda::column_sums(rows, columns, kernels::cuda::map_type(dense), dense.data_ptr(),
                               partial.data_ptr<float>(), sums.data_ptr<float>(), scope.stream());
    return sums;
  }
#endif
  return gradient.sum({0, 2, 3}, /*keepdim=*/false, torch::kFloat32);
}

std::pair<Tensor, Tensor> relu_gradient(const Tensor& out, const Tensor& gradient) {
#ifdef REMCAPS_CUDA
  if (has_kernels(out)) {
    const int64_t rows = out.size(0), columns = out.size(1);
    const Tensor masked = torch::empty_like(out), sums = floats(out, columns);
    const Tensor partial = floats(out, kernels::cuda::column_sums_floats(rows, columns));
    const kernels::cuda::DeviceScope scope(out);
    kernels::cuda::relu_gradient(rows, columns, kernels::cuda::map_type(out), out.data_ptr(),
                                 gradient.data_ptr(), masked.data_ptr(), partial.data_ptr<float>(),
                                 sums.data_ptr<float>(), scope.stream());
    return {masked, sums};
  }
#endif
  const Tensor masked = gradient * (out > 0);
  return {masked, masked.sum(0, /*keepdim=*/false, torch::kFloat32)};
}

}  // namespace remcaps
