// Packed weights: the weight of a trained layer, laid out once for a CPU kernel.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>

namespace remcaps {

/// A packed copy of a layer's weight. It is valid as long as the weight is the same tensor and
/// nobody writes to it. (A write through data() is not noticed.)
template <typename Form>
class PackedWeight {
 public:
  explicit PackedWeight(const torch::Tensor& weight)
      : form_(weight), values_(weight.data_ptr()), version_(version_of(weight)) {}

  /// Null if the weight has changed since.
  const Form* of(const torch::Tensor& weight) const {
    const bool same = values_ == weight.data_ptr() && version_ == version_of(weight);
    return same ? &form_ : nullptr;
  }

 private:
  // Tensors of torch's inference mode have no version; nobody changes them.
  static int64_t version_of(const torch::Tensor& weight) {
    return weight.is_inference() ? 0 : static_cast<int64_t>(weight._version());
  }

  Form form_;
  const void* values_;
  int64_t version_;
};

/// Null if there is no packed copy, or if the weight has changed since.
template <typename Form>
const Form* form_of(const std::shared_ptr<const PackedWeight<Form>>& packed,
                    const torch::Tensor& weight) {
  return packed != nullptr ? packed->of(weight) : nullptr;
}

/// Calls pack() of every convolution and capsule layer of a trained network.
void pack_weights(torch::nn::Module& network);

}  // namespace remcaps
