#include "remcaps/capsule/convolve.h"

#include <torch/autograd.h>

#include "remcaps/base/torch_compat.h"
#include "remcaps/kernels/fast_convolution.h"

namespace remcaps {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A tensor [.., C, H, W] as a GPU's convolutions are fastest with it, bfloat16 and channels-last,
// in one copy. Its gradient is float32 in the plain layout, in one copy too: that of a weight is
// then kept as it is, where torch's own casts would have it copied once more.
class TensorCoreCopy : public torch::autograd::Function<TensorCoreCopy> {
 public:
  static Tensor forward(AutogradContext*, const Tensor& tensor) {
    return tensor.to(torch::kBFloat16, /*non_blocking=*/false, /*copy=*/false,
                     torch::MemoryFormat::ChannelsLast);
  }

  static variable_list backward(AutogradContext*, const variable_list& grad_outputs) {
    const Tensor gradient =
        torch::empty(grad_outputs[0].sizes(), grad_outputs[0]
                                                  .options()
                                                  .dtype(torch::kFloat32)
                                                  .memory_format(torch::MemoryFormat::Contiguous));
    gradient.copy_(grad_outputs[0]);
    return {gradient};
  }
};

Tensor for_tensor_cores(const Tensor& tensor) {
  // What an earlier convolution made is bfloat16 already, and wants its gradient so.
  if (tensor.scalar_type() == torch::kBFloat16)
    return tensor.contiguous(torch::MemoryFormat::ChannelsLast);
  return TensorCoreCopy::apply(tensor);
}

// The layer's padding where it is so many zeros; null where it is a name or mirrors the map.
const torch::ExpandingArray<2>* zero_padding(const torch::nn::Conv2dImpl& layer) {
  if (get_if<torch::enumtype::kZeros>(&layer.options.padding_mode()) == nullptr) return nullptr;
  return get_if<torch::ExpandingArray<2>>(&layer.options.padding());
}

// No padding, no dilation, no groups.
bool is_simple(const torch::nn::Conv2dImpl& layer) {
  const auto padding = layer.options.padding();
  const auto* margins = get_if<torch::ExpandingArray<2>>(&padding);
  const auto dilation = *layer.options.dilation();
  return margins != nullptr && (*margins)->at(0) == 0 && (*margins)->at(1) == 0 &&
         dilation[0] == 1 && dilation[1] == 1 && layer.options.groups() == 1;
}

// Packing the weights pays only where enough places share them: not for a single small map.
bool has_many_places(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  constexpr int64_t kPlaces = 128;
  const auto stride = *layer.options.stride(), kernel = *layer.options.kernel_size();
  const int64_t rows = (map.size(2) - kernel[0]) / stride[0] + 1;
  const int64_t columns = (map.size(3) - kernel[1]) / stride[1] + 1;
  return map.size(0) * rows * columns >= kPlaces;
}

}  // namespace

Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels) {
  if (kernels == KernelPath::kFused && is_simple(layer) && has_many_places(layer, map) &&
      has_fast_convolution(map, layer.weight))
    return fast_convolution(map, layer.weight, layer.bias, *layer.options.stride());
  const torch::ExpandingArray<2>* padding = zero_padding(layer);
  if (kernels == KernelPath::kFused && padding != nullptr && cuda_autocast_is_on(map.device()))
    return torch::conv2d(for_tensor_cores(map), for_tensor_cores(layer.weight),
                         layer.bias.defined() ? layer.bias.to(torch::kBFloat16) : Tensor(),
                         layer.options.stride(), *padding, layer.options.dilation(),
                         layer.options.groups());
  return layer.forward(map);
}

}  // namespace remcaps
