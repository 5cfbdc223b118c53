#include "remcaps/ops/tensor_core_copy.h"

#include <torch/autograd.h>

#include "remcaps/kernels/convolution/layout.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

#ifdef REMCAPS_CUDA
// The channels and places of every image (or filter) as a matrix. torch's own copy reads or writes
// such a matrix across its rows, at an eighth of the memory's speed.
kernels::cuda::Matrices channels_and_places(const Tensor& tensor) {
  return {
      .count = tensor.size(0), .rows = tensor.size(1), .columns = tensor.size(2) * tensor.size(3)};
}
#endif

// Copies to `to`, which has the same shape: from plain float32 to channels-last bfloat16, or from
// channels-last of either type to plain float32.
void copy_across(const Tensor& from, const Tensor& to) {
#ifdef REMCAPS_CUDA
  const bool narrows = to.scalar_type() == torch::kBFloat16 && from.is_contiguous() &&
                       from.scalar_type() == torch::kFloat32 &&
                       to.is_contiguous(torch::MemoryFormat::ChannelsLast);
  const bool widens =
      to.scalar_type() == torch::kFloat32 && to.is_contiguous() &&
      (from.scalar_type() == torch::kBFloat16 || from.scalar_type() == torch::kFloat32) &&
      from.is_contiguous(torch::MemoryFormat::ChannelsLast);
  if (from.is_cuda() && from.dim() == 4 && (narrows || widens)) {
    const kernels::cuda::DeviceScope scope(from);
    kernels::cuda::Matrices shape = channels_and_places(from);
    if (narrows)
      return kernels::cuda::transpose_to_bfloat16(shape, from.data_ptr<float>(), to.data_ptr(),
                                                  scope.stream());
    std::swap(shape.rows, shape.columns);  // the rows of a channels-last map are its places
    return kernels::cuda::transpose_to_float32(shape, kernels::cuda::map_type(from),
                                               from.data_ptr(), to.data_ptr<float>(),
                                               scope.stream());
  }
#endif
  to.copy_(from);
}

class TensorCoreCopy : public torch::autograd::Function<TensorCoreCopy> {
 public:
  static Tensor forward(AutogradContext*, const Tensor& tensor) {
    const Tensor copy =
        torch::empty(tensor.sizes(), tensor.options()
                                         .dtype(torch::kBFloat16)
                                         .requires_grad(false)
                                         .memory_format(torch::MemoryFormat::ChannelsLast));
    copy_across(tensor, copy);
    return copy;
  }

  static variable_list backward(AutogradContext*, const variable_list& grad_outputs) {
    return {plain_copy(grad_outputs[0])};
  }
};

}  // namespace

Tensor plain_copy(const Tensor& tensor) {
  const Tensor copy =
      torch::empty(tensor.sizes(), tensor.options()
                                       .dtype(torch::kFloat32)
                                       .requires_grad(false)
                                       .memory_format(torch::MemoryFormat::Contiguous));
  copy_across(tensor, copy);
  return copy;
}

Tensor tensor_core_copy(const Tensor& tensor) {
  return TensorCoreCopy::apply(tensor);
}

}  // namespace remcaps
