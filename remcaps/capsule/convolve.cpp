#include "remcaps/capsule/convolve.h"

#include <optional>

#include "remcaps/capsule/packed_weight.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

// The layer as ops/ sees it. Nothing if its padding is not a number of zeros.
std::optional<ConvolutionLayer> as_operation(const torch::nn::Conv2dImpl& layer) {
  const auto* padding = get_if<torch::ExpandingArray<2>>(&layer.options.padding());
  if (padding == nullptr ||
      get_if<torch::enumtype::kZeros>(&layer.options.padding_mode()) == nullptr)
    return std::nullopt;
  return ConvolutionLayer{.weight = layer.weight,
                          .bias = layer.bias,
                          .stride = *layer.options.stride(),
                          .padding = **padding,
                          .dilation = *layer.options.dilation(),
                          .groups = layer.options.groups()};
}

Tensor convolved(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels, bool relu) {
  std::optional<ConvolutionLayer> operation = as_operation(layer);
  if (!operation) return relu ? torch::relu(layer.forward(map)) : layer.forward(map);
  operation->relu = relu;
  if (const auto* packed = dynamic_cast<const ConvolutionImpl*>(&layer)) {
    operation->filters = packed->filters();
    operation->sparse = packed->sparse();
  }
  return convolution(map, *operation, kernels);
}

}  // namespace

void ConvolutionImpl::pack() {
  sparse_.reset();
  filters_.reset();
  const std::optional<ConvolutionLayer> operation = as_operation(*this);
  if (!operation) return;
  const PackedForms forms = choose_packing(*operation);
  if (forms.sparse) sparse_ = std::make_shared<const PackedWeight<SparseWeights>>(weight);
  if (forms.filters) filters_ = std::make_shared<const PackedWeight<PackedFilters>>(weight);
}

const SparseWeights* ConvolutionImpl::sparse() const {
  return form_of(sparse_, weight);
}

const PackedFilters* ConvolutionImpl::filters() const {
  return form_of(filters_, weight);
}

void ConvolutionImpl::train(bool on) {
  if (on && weight.requires_grad()) {
    sparse_.reset();
    filters_.reset();
  }
  Conv2dImpl::train(on);
}

Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels) {
  return convolved(layer, map, kernels, /*relu=*/false);
}

Tensor convolve_relu(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels) {
  return convolved(layer, map, kernels, /*relu=*/true);
}

}  // namespace remcaps
