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
  void pack(const torch::Tensor& weight) {
    form_ = std::make_shared<const Form>(weight);
    values_ = weight.data_ptr();
    version_ = version_of(weight);
  }
  void forget() { form_.reset(); }

  /// Null if there is no packed copy, or if the weight has changed since.
  const Form* of(const torch::Tensor& weight) const {
    const bool same = values_ == weight.data_ptr() && version_ == version_of(weight);
    return form_ != nullptr && same ? form_.get() : nullptr;
  }

 private:
  // Tensors of torch's inference mode have no version; nobody changes them.
  static int64_t version_of(const torch::Tensor& weight) {
    return weight.is_inference() ? 0 : static_cast<int64_t>(weight._version());
  }

  std::shared_ptr<const Form> form_;  // shared: headers need not know what a Form is
  const void* values_ = nullptr;
  int64_t version_ = 0;
};

/// Calls pack() of every convolution and capsule layer of a trained network.
void pack_weights(torch::nn::Module& network);

}  // namespace remcaps
