#include "remcaps/capsule/convolve.h"

#include <optional>

#include "remcaps/torch/compat.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/pixel_layer.h"
#include "remcaps/ops/strip_convolution.h"
#include "remcaps/ops/tensor_core_copy.h"

namespace remcaps {
namespace {

constexpr int64_t kFewChannels = 4;  // at most: images rather than maps

// Shares of the weights up to which a sparse convolution pays. For many places a fifth takes as
// long as all as panels, a third as all in oneDNN, which padded layers have; for a single small map
// a third and a half.
constexpr double kFew = 0.25;
constexpr double kSome = 0.35;
constexpr double kHalf = 0.5;

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

Tensor tensor_core_convolution(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  const Tensor sums = torch::conv2d(for_tensor_cores(map), for_tensor_cores(layer.weight),
                                    /*bias=*/{}, layer.options.stride(), *zero_padding(layer),
                                    layer.options.dilation(), layer.options.groups());
  return layer.bias.defined() ? add_channel_bias(sums, layer.bias) : sums;
}

bool has_dense_windows(const torch::nn::Conv2dImpl& layer) {
  return *layer.options.dilation() == std::array<int64_t, 2>{1, 1} && layer.options.groups() == 1;
}

bool has_no_padding(const torch::nn::Conv2dImpl& layer) {
  const torch::ExpandingArray<2>* padding = zero_padding(layer);
  return padding != nullptr && **padding == std::array<int64_t, 2>{0, 0};
}

// Places of the result of all images; 0 where the map is smaller than the kernel. (Padding is not
// counted.)
int64_t places_of(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  const auto stride = *layer.options.stride(), kernel = *layer.options.kernel_size();
  if (map.size(2) < kernel[0] || map.size(3) < kernel[1]) return 0;
  const int64_t rows = (map.size(2) - kernel[0]) / stride[0] + 1;
  const int64_t columns = (map.size(3) - kernel[1]) / stride[1] + 1;
  return map.size(0) * rows * columns;
}

// Packing the weights at every call pays only where enough places share them: not for a single
// small map.
bool has_many_places(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  constexpr int64_t kPlaces = 128;
  return places_of(layer, map) >= kPlaces;
}

// What a product of windows is made in, if the layer is one of pixels on a GPU: it may round more
// than float32 does.
std::optional<torch::ScalarType> pixel_type(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  if (zero_padding(layer) == nullptr || !has_dense_windows(layer) || map.requires_grad() ||
      map.scalar_type() != torch::kFloat32 || map.size(1) > kFewChannels)
    return std::nullopt;
  if (cuda_autocast_is_on(map.device())) return torch::kBFloat16;
  if (tf32_is_on(map.device())) return torch::kFloat32;
  return std::nullopt;
}

// The layer by strips, where that pays; its products, too, may round more than float32 does.
std::optional<StripConvolution> strips_of(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  if (zero_padding(layer) == nullptr || !has_dense_windows(layer) ||
      !(cuda_autocast_is_on(map.device()) || tf32_is_on(map.device())))
    return std::nullopt;
  const StripConvolution strips{*layer.options.stride(), **zero_padding(layer)};
  return has_strip_convolution(strips, map, layer.weight) ? std::optional(strips) : std::nullopt;
}

// The layer, where what it packed may stand for its weights: no gradient is asked for.
const ConvolutionImpl* packed_layer(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  if (needs_gradient_of_any(map, layer.weight, layer.bias) || !map.is_cpu() ||
      map.scalar_type() != torch::kFloat32)
    return nullptr;
  return dynamic_cast<const ConvolutionImpl*>(&layer);
}

// The weights that are left, where the layer keeps them and they are few enough to pay. A first
// layer's windows have to be gathered for either.
const SparseWeights* sparse_weights(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  const ConvolutionImpl* packed = packed_layer(layer, map);
  const SparseWeights* weights = packed != nullptr ? packed->sparse() : nullptr;
  const bool pays =
      weights != nullptr &&
      (weights->density() <= kFew || map.size(1) <= kFewChannels || !has_many_places(layer, map));
  return pays ? weights : nullptr;
}

// All weights as panels, where the layer keeps them and its windows fit in the map.
const PackedFilters* packed_filters(const torch::nn::Conv2dImpl& layer, const Tensor& map) {
  const ConvolutionImpl* packed = packed_layer(layer, map);
  return packed != nullptr && places_of(layer, map) > 0 ? packed->filters() : nullptr;
}

Tensor convolution(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels, bool relu) {
  const auto rectified = [relu](const Tensor& result) {
    return relu ? torch::relu(result) : result;
  };
  if (kernels == KernelPath::kReference) return rectified(layer.forward(map));
  const SparseWeights* sparse = sparse_weights(layer, map);
  if (has_dense_windows(layer) && has_no_padding(layer)) {
    const auto stride = *layer.options.stride();
    const bool many = has_many_places(layer, map);
    if (many && has_bf16_convolution(map, layer.weight, layer.bias))
      return bf16_convolution(map, layer.weight, layer.bias, stride, relu);
    const PackedFilters* filters = packed_filters(layer, map);
    if ((many || filters != nullptr) && has_fast_convolution(map, layer.weight) &&
        sparse == nullptr)
      return rectified(fast_convolution(map, layer.weight, layer.bias, stride, filters));
  }
  if (sparse != nullptr)
    return sparse_convolution(map, *sparse, layer.bias, *layer.options.stride(),
                              **zero_padding(layer), relu);
  if (const auto type = pixel_type(layer, map))
    return pixel_layer({*layer.options.stride(), **zero_padding(layer), *type, relu}, map,
                       layer.weight, layer.bias);
  if (const auto strips = strips_of(layer, map))
    return rectified(
        strip_convolution(*strips, cuda_autocast_is_on(map.device()) ? for_tensor_cores(map) : map,
                          layer.weight, layer.bias));
  if (zero_padding(layer) != nullptr && cuda_autocast_is_on(map.device()))
    return rectified(tensor_core_convolution(layer, map));
  return rectified(layer.forward(map));
}

}  // namespace

void ConvolutionImpl::pack() {
  sparse_.forget();
  filters_.forget();
  if (!weight.is_cpu() || weight.scalar_type() != torch::kFloat32 || !has_dense_windows(*this) ||
      zero_padding(*this) == nullptr)
    return;
  const double left = weight.count_nonzero().item<double>() / static_cast<double>(weight.numel());
  const bool has_panels = has_no_padding(*this) && has_packed_filters(weight);
  const bool is_first = weight.size(1) <= kFewChannels;
  if (left <= (has_panels && !is_first ? kSome : kHalf)) sparse_.pack(weight);
  if (has_panels && left > (is_first ? kHalf : kFew)) filters_.pack(weight);
}

void ConvolutionImpl::train(bool on) {
  if (on) {
    sparse_.forget();
    filters_.forget();
  }
  Conv2dImpl::train(on);
}

Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels) {
  return convolution(layer, map, kernels, /*relu=*/false);
}

Tensor convolve_relu(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels) {
  return convolution(layer, map, kernels, /*relu=*/true);
}

}  // namespace remcaps
