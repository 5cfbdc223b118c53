// The convolution layers of capsule networks.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <memory>
#include <string>

#include "remcaps/capsule/forward.h"
#include "remcaps/ops/kernel_path.h"

namespace remcaps {

using torch::Tensor;

class PackedFilters;
class SparseWeights;
template <typename Form>
class PackedWeight;

/// A map of features and the layer it comes from.
struct FeatureMap {
  int64_t channels = 0, height = 0, width = 0;
  std::string origin;         ///< "input" or a layer's name
  ReceptiveField field = {};  ///< the pixels that its places see; norms do not count
};

/// A convolution that is to be made.
struct ConvShape {
  int64_t channels = 0;  ///< of the output
  torch::ExpandingArray<2> kernel = 1;
  torch::ExpandingArray<2> stride = 1;
  torch::ExpandingArray<2> padding = 0;
  int64_t groups = 1;
  bool bias = true;
};

/// A convolution that can pack its weight once it is trained.
class ConvolutionImpl : public torch::nn::Conv2dImpl {
 public:
  using Conv2dImpl::Conv2dImpl;

  /// Copies the weight into the forms that are fastest on a CPU (choose_packing). The weight must
  /// not change any more; training mode drops the copies, unless the weight is frozen.
  void pack();
  void train(bool on = true) override;

  /// The packed forms; null if pack() did not make one, or if the weight has changed since.
  const SparseWeights* sparse() const;
  const PackedFilters* filters() const;

 private:
  std::shared_ptr<const PackedWeight<SparseWeights>> sparse_;
  std::shared_ptr<const PackedWeight<PackedFilters>> filters_;
};
TORCH_MODULE(Convolution);

/// The layer's forward(), by the implementation that ops/convolution.h chooses.
Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

/// relu(convolve(...)), in one pass if the implementation can do that.
Tensor convolve_relu(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

}  // namespace remcaps
