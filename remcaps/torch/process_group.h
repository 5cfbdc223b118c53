// The processes that work on one run together, over torch's c10d: Gloo on CPUs, NCCL on GPUs.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/torch/launcher.h"

namespace remcaps {

/// Other processes of the run do not answer any more.
class PeerLost : public Error {
 public:
  PeerLost(const std::string& message, bool writer) : Error(message), writer_(writer) {}
  /// Whether rank 0, which writes the run's files, is one of them.
  bool writer() const { return writer_; }

 private:
  bool writer_;
};

/// All processes must call the same functions in the same order. A call returns when all have come,
/// or throws PeerLost within about the time-out. On GPUs the work is only queued: a lost process is
/// noticed by NCCL, which ends the program.
class ProcessGroup {
 public:
  /// Waits for the other processes. `device` is where the tensors of a run are; tensors of the host
  /// are accepted too. Error if a process does not come within `timeout`, or if this build has no
  /// library for the device.
  ProcessGroup(const Launch& launch, torch::Device device, std::chrono::seconds timeout);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int64_t rank() const { return launch_.rank; }
  int64_t size() const { return launch_.size; }

  /// Replaces a contiguous tensor by the sum over the processes: the same bits in all of them.
  void all_reduce_sum(torch::Tensor tensor);
  /// The sums of several contiguous tensors of one type, in one operation. NCCL adds in place and
  /// returns the same tensors; with Gloo the sums share one new tensor.
  std::vector<torch::Tensor> all_reduce_sums(std::vector<torch::Tensor> tensors);
  /// Replaces a contiguous tensor by that of rank 0.
  void broadcast(torch::Tensor tensor);
  void barrier();

  /// The text of rank 0.
  std::string broadcast_text(const std::string& text);
  /// The bytes of each rank.
  std::vector<std::string> gather(const std::string& bytes);

 private:
  class Impl;
  template <typename Work>
  void run(const Work& work);
  [[noreturn]] void lose(const std::string& reason);

  Launch launch_;
  std::unique_ptr<Impl> impl_;
};

/// Whether this build can train in several processes on such a device.
bool has_process_groups(torch::DeviceType device);

}  // namespace remcaps
