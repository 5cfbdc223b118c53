// Behind ProcessGroup: the libraries that move the bytes.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace remcaps {

class ProcessGroupBackend {
 public:
  virtual ~ProcessGroupBackend() = default;
  virtual void all_reduce_sum(torch::Tensor tensor) = 0;
  virtual std::vector<torch::Tensor> all_reduce_sums(std::vector<torch::Tensor> tensors) = 0;
  virtual void broadcast(torch::Tensor tensor) = 0;
};

/// The backend of any of c10d's groups.
template <typename Group>
class C10dBackend : public ProcessGroupBackend {
 public:
  explicit C10dBackend(c10::intrusive_ptr<Group> group) : group_(std::move(group)) {}
  void all_reduce_sum(torch::Tensor tensor) override {
    std::vector<torch::Tensor> tensors = {tensor};
    group_->allreduce(tensors)->wait();
  }
  std::vector<torch::Tensor> all_reduce_sums(std::vector<torch::Tensor> tensors) override {
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& tensor : tensors) parts.push_back(tensor.flatten());
    const torch::Tensor flat = torch::cat(parts);
    all_reduce_sum(flat);
    int64_t offset = 0;
    for (torch::Tensor& tensor : tensors) {
      tensor = flat.narrow(0, std::exchange(offset, offset + tensor.numel()), tensor.numel())
                   .view(tensor.sizes());
    }
    return tensors;
  }
  void broadcast(torch::Tensor tensor) override {
    std::vector<torch::Tensor> tensors = {tensor};
    group_->broadcast(tensors)->wait();
  }

 protected:
  c10::intrusive_ptr<Group> group_;
};

/// Only in builds that have NCCL's headers (process_group_nccl.cpp).
std::unique_ptr<ProcessGroupBackend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                       int64_t rank, int64_t size,
                                                       std::chrono::seconds timeout);

}  // namespace remcaps
