#include "remcaps/capsule/divided_batch.h"

#include <torch/csrc/autograd/custom_function.h>

namespace remcaps {
namespace {

ProcessGroup* dividing_group = nullptr;
int64_t divided_images = 0;

torch::Tensor summed(const torch::Tensor& part, ProcessGroup& group) {
  const torch::Tensor sum = part.detach().clone(torch::MemoryFormat::Contiguous);
  group.all_reduce_sum(sum);
  return sum;
}

// Every process's loss depends on the sum: its gradient is the sum of theirs.
class SumOverProcesses : public torch::autograd::Function<SumOverProcesses> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& part,
                               int64_t group) {
    context->saved_data["group"] = group;
    return summed(part, *reinterpret_cast<ProcessGroup*>(group));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    return {summed(gradients[0], *group), torch::Tensor()};
  }
};

}  // namespace

DividedBatch::DividedBatch(ProcessGroup* group, int64_t images) {
  dividing_group = group;
  divided_images = images;
}

DividedBatch::~DividedBatch() {
  dividing_group = nullptr;
}

ProcessGroup* DividedBatch::group() {
  return dividing_group;
}

int64_t DividedBatch::images() {
  return divided_images;
}

torch::Tensor sum_over_processes(const torch::Tensor& part, ProcessGroup& group) {
  return SumOverProcesses::apply(part, reinterpret_cast<int64_t>(&group));
}

}  // namespace remcaps
