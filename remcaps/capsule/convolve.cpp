#include "remcaps/capsule/convolve.h"

#include "remcaps/kernels/fast_convolution.h"

namespace remcaps {
namespace {

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
  return layer.forward(map);
}

}  // namespace remcaps
