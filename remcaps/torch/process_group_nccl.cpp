#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "remcaps/torch/process_group_backend.h"

namespace remcaps {
namespace {

using NcclGroup = c10d::ProcessGroupNCCL;

class NcclBackend : public C10dBackend<NcclGroup> {
 public:
  using C10dBackend<NcclGroup>::C10dBackend;
  // One launch for all tensors, and no copy of any.
  std::vector<torch::Tensor> all_reduce_sums(std::vector<torch::Tensor> tensors) override {
    group_->allreduce_coalesced(tensors)->wait();
    return tensors;
  }
};

}  // namespace

std::unique_ptr<ProcessGroupBackend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                       int64_t rank, int64_t size,
                                                       std::chrono::seconds timeout) {
  const auto options = NcclGroup::Options::create();
  options->timeout = timeout;
  return std::make_unique<NcclBackend>(c10::make_intrusive<NcclGroup>(
      store, static_cast<int>(rank), static_cast<int>(size), options));
}

}  // namespace remcaps
