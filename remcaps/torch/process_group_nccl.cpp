#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "remcaps/torch/process_group_backend.h"

namespace remcaps {

std::unique_ptr<ProcessGroupBackend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                       int64_t rank, int64_t size,
                                                       std::chrono::seconds timeout) {
  using Group = c10d::ProcessGroupNCCL;
  const auto options = Group::Options::create();
  options->timeout = timeout;
  return std::make_unique<C10dBackend<Group>>(
      c10::make_intrusive<Group>(store, static_cast<int>(rank), static_cast<int>(size), options));
}

}  // namespace remcaps
