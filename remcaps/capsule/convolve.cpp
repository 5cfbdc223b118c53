#include "remcaps/capsule/convolve.h"

#include "remcaps/base/torch_compat.h"
#include "remcaps/kernels/fast_convolution.h"
#include "remcaps/kernels/tensor_core_copy.h"

namespace remcaps {
namespace {

// What an earlier convolution made is bfloat16 already, and wants its gradient so.
Tensor for_tensor_cores(const Tensor& tensor) {
  return tensor.scalar_type() == torch::kBFloat16
             ? tensor.contiguous(torch::MemoryFormat::ChannelsLast)
             : tensor_core_copy(tensor);
}

// The layer's padding where it is so many zeros; null where it is a name or mirrors the map.
const torch::ExpandingArray<2>* zero_padding(const torch::nn::Conv2dImpl& layer) {
  if (get_if<torch::enumtype::kZeros>(&layer.options.padding_mode()) == nullptr) return nullptr;
  return get_if<torch::ExpandingArray<2>>(&layer.options.padding());
}

Tensor narrow_bias(const torch::nn::Conv2dImpl& layer) {
  return layer.bias.defined() ? layer.bias.to(torch::kBFloat16) : Tensor();
}

Tensor tensor_core_convolution(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  return torch::conv2d(for_tensor_cores(map), for_tensor_cores(layer.weight), narrow_bias(layer),
                       layer.options.stride(), *zero_padding(layer), layer.options.dilation(),
                       layer.options.groups());
}

// A network's first layer: its map has too few channels to fill a tensor core's product, and needs
// no gradient.
bool sees_pixels(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  constexpr int64_t kFewChannels = 4;
  return map.size(1) <= kFewChannels && !map.requires_grad() && layer.options.groups() == 1 &&
         *layer.options.dilation() == std::array<int64_t, 2>{1, 1};
}

// The same convolution as one matrix product: every window of the map is a row of it.
Tensor product_of_windows(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  constexpr int64_t kAlignment = 8;  // bfloat16 numbers in the 16 bytes that products are made of
  const auto& [above, left] = **zero_padding(layer);
  const Tensor padded =
      above + left == 0 ? map : torch::constant_pad_nd(map, {left, left, above, above});
  const Tensor windows = padded.unfold(2, layer.weight.size(2), layer.options.stride()->at(0))
                             .unfold(3, layer.weight.size(3), layer.options.stride()->at(1))
                             .permute({0, 2, 3, 1, 4, 5});  // [B, h, w, C, kh, kw]
  const int64_t filters = layer.weight.size(0), length = layer.weight[0].numel();
  const int64_t fill = (kAlignment - length % kAlignment) % kAlignment;
  const int64_t places = windows.size(0) * windows.size(1) * windows.size(2);
  const Tensor rows = torch::empty({places, length + fill}, map.options().dtype(torch::kBFloat16));
  rows.narrow(1, 0, length).view(windows.sizes()).copy_(windows);
  rows.narrow(1, length, fill).zero_();
  const Tensor weight =
      torch::constant_pad_nd(layer.weight.view({filters, length}).to(torch::kBFloat16), {0, fill});
  const Tensor product = layer.bias.defined()
                             ? torch::addmm(narrow_bias(layer), rows, weight.t())
                             : torch::mm(rows, weight.t());  // [B * h * w, filters]
  return product.view({windows.size(0), windows.size(1), windows.size(2), filters})
      .permute({0, 3, 1, 2});
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
  if (kernels == KernelPath::kFused && zero_padding(layer) != nullptr &&
      cuda_autocast_is_on(map.device()))
    return sees_pixels(layer, map) ? product_of_windows(layer, map)
                                   : tensor_core_convolution(layer, map);
  return layer.forward(map);
}

}  // namespace remcaps
