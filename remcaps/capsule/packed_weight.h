// Weights that do not change any more, in the form the CPU's kernels are fastest with.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>

namespace remcaps {

/// What a layer keeps beside a weight: a Form that is made of it once, and is its own for as long
/// as the weight is the same tensor and nobody writes to it (but behind autograd's back, by
/// data()).
template <typename Form>
class PackedWeight {
 public:
  void pack(const torch::Tensor& weight) {
    form_ = std::make_unique<const Form>(weight);
    values_ = weight.data_ptr();
    version_ = version_of(weight);
  }
  void forget() { form_.reset(); }

  /// Null where there is none, or where the weight has changed.
  const Form* of(const torch::Tensor& weight) const {
    const bool same = values_ == weight.data_ptr() && version_ == version_of(weight);
    return form_ != nullptr && same ? form_.get() : nullptr;
  }

 private:
  // Weights without a version are those of torch's inference mode, which nobody changes.
  static int64_t version_of(const torch::Tensor& weight) {
    return weight.is_inference() ? 0 : static_cast<int64_t>(weight._version());
  }

  std::unique_ptr<const Form> form_;
  const void* values_ = nullptr;
  int64_t version_ = 0;
};

/// pack() of every convolution and every layer of capsules of a network that is trained.
void pack_weights(torch::nn::Module& network);

}  // namespace remcaps
