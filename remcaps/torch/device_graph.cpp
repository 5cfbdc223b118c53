#include "remcaps/torch/device_graph.h"

#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/base/text.h"
#ifdef REMCAPS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/cuda.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>
#endif

namespace remcaps {

bool has_device_graphs([[maybe_unused]] torch::Device device) {
#ifdef REMCAPS_CUDA
  return device.is_cuda();
#else
  return false;
#endif
}

#ifdef REMCAPS_CUDA

namespace {

// The same streams for the whole process, numbered: torch keeps memory and workspaces per stream.
c10::cuda::CUDAStream own_stream(torch::Device device, int64_t number) {
  static std::mutex mutex;
  static std::map<std::pair<int, int64_t>, c10::cuda::CUDAStream> streams;
  const std::lock_guard<std::mutex> lock(mutex);
  const int index = device.has_index() ? device.index() : c10::cuda::current_device();
  const auto found = streams.find({index, number});
  if (found != streams.end()) return found->second;
  const auto stream =
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, static_cast<c10::DeviceIndex>(index));
  return streams.emplace(std::pair(index, number), stream).first->second;
}

}  // namespace

struct OwnStream::State {
  explicit State(torch::Device device) : stream(own_stream(device, /*number=*/0)), guard(stream) {}
  c10::cuda::CUDAStream stream;
  c10::cuda::CUDAStreamGuard guard;
};

OwnStream::OwnStream(torch::Device device) {
  if (!has_device_graphs(device)) return;
  torch::cuda::synchronize(device.index());
  state_ = std::make_unique<State>(device);
}

OwnStream::~OwnStream() {
  // torch's call would throw. An error of the device is reported elsewhere.
  if (state_) cudaStreamSynchronize(state_->stream.stream());
}

struct ParallelStreams::State {
  State(torch::Device device, int64_t count)
      : streams{c10::cuda::getCurrentCUDAStream(device.index())} {
    at::cuda::CUDAEvent begin;
    begin.record(streams[0]);
    for (int64_t number = 1; number < count; ++number) {
      streams.push_back(own_stream(device, number));
      begin.block(streams.back());
    }
  }
  void join() {
    for (size_t i = 1; i < streams.size(); ++i) {
      at::cuda::CUDAEvent end;
      end.record(streams[i]);
      end.block(streams[0]);
    }
  }
  std::vector<c10::cuda::CUDAStream> streams;
};

ParallelStreams::ParallelStreams(torch::Device device, int64_t count) {
  if (has_device_graphs(device) && count > 1) state_ = std::make_unique<State>(device, count);
}

ParallelStreams::~ParallelStreams() {
  try {
    join();
  } catch (const std::exception&) {
    // An error of the device is reported elsewhere.
  }
}

void ParallelStreams::on(int64_t stream, const std::function<void()>& work) {
  if (!state_) return work();
  const c10::cuda::CUDAStreamGuard guard(state_->streams.at(static_cast<size_t>(stream)));
  work();
}

void ParallelStreams::join() {
  const auto state = std::move(state_);
  if (state) state->join();
}

struct DeviceGraph::State {
  std::unique_ptr<at::cuda::CUDAGraph> graph;
  std::function<void()> work;  // if there are no device graphs
};

void DeviceGraph::record(const std::function<void()>& work) {
  if (!has_device_graphs(device_)) {
    state_->work = work;
    return;
  }
  auto next = std::make_unique<at::cuda::CUDAGraph>();
  // The pool of the earlier graph lives only as long as that graph.
  if (state_->graph)
    next->capture_begin(state_->graph->pool());
  else
    next->capture_begin();
  try {
    work();
    next->capture_end();
  } catch (...) {
    // End the recording. Errors of that are ignored and cleared: the first exception is the one
    // worth reporting.
    try {
      next->capture_end();
    } catch (const std::exception&) {
    }
    (void)cudaGetLastError();
    state_->graph.reset();
    throw;
  }
  state_->graph = std::move(next);
}

bool DeviceGraph::recorded() const {
  return state_->graph != nullptr || state_->work != nullptr;
}

void DeviceGraph::replay() {
  check(recorded(), "a device graph that was never recorded cannot be replayed");
  state_->graph ? state_->graph->replay() : state_->work();
}

#else

struct OwnStream::State {};
OwnStream::OwnStream(torch::Device) {}
OwnStream::~OwnStream() = default;

struct ParallelStreams::State {};
ParallelStreams::ParallelStreams(torch::Device, int64_t) {}
ParallelStreams::~ParallelStreams() = default;
void ParallelStreams::on(int64_t, const std::function<void()>& work) {
  work();
}
void ParallelStreams::join() {}

struct DeviceGraph::State {
  std::function<void()> work;
};

void DeviceGraph::record(const std::function<void()>& work) {
  state_->work = work;
}

bool DeviceGraph::recorded() const {
  return state_->work != nullptr;
}

void DeviceGraph::replay() {
  check(recorded(), "a device graph that was never recorded cannot be replayed");
  state_->work();
}

#endif

DeviceGraph::DeviceGraph(torch::Device device)
    : device_(device), state_(std::make_unique<State>()) {}
DeviceGraph::~DeviceGraph() = default;

bool DeviceGraph::try_record(const std::string& what, const std::function<void()>& work) {
  try {
    record(work);
    return true;
  } catch (const std::exception& error) {
    *state_ = State();
    say("warning: {} could not be recorded as a CUDA graph: {}", what, first_line(error.what()));
    return false;
  }
}

}  // namespace remcaps
