#include "remcaps/torch/device_graph.h"

#include "remcaps/base/error.h"
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

// One for a lane of a device and the whole process: torch keeps memory and workspaces for every
// stream.
c10::cuda::CUDAStream own_stream(torch::Device device, int64_t lane) {
  static std::mutex mutex;
  static std::map<std::pair<int, int64_t>, c10::cuda::CUDAStream> streams;
  const std::lock_guard<std::mutex> lock(mutex);
  const int index = device.has_index() ? device.index() : c10::cuda::current_device();
  const auto found = streams.find({index, lane});
  if (found != streams.end()) return found->second;
  const auto stream =
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, static_cast<c10::DeviceIndex>(index));
  return streams.emplace(std::pair(index, lane), stream).first->second;
}

}  // namespace

struct OwnStream::State {
  explicit State(torch::Device device) : stream(own_stream(device, /*lane=*/0)), guard(stream) {}
  c10::cuda::CUDAStream stream;
  c10::cuda::CUDAStreamGuard guard;
};

OwnStream::OwnStream(torch::Device device) {
  if (!has_device_graphs(device)) return;
  torch::cuda::synchronize(device.index());
  state_ = std::make_unique<State>(device);
}

OwnStream::~OwnStream() {
  // Not torch's call, which throws: an error of the device has been, or will be, reported
  // elsewhere.
  if (state_) cudaStreamSynchronize(state_->stream.stream());
}

struct Lanes::State {
  State(torch::Device device, int64_t count)
      : streams{c10::cuda::getCurrentCUDAStream(device.index())} {
    at::cuda::CUDAEvent begin;
    begin.record(streams[0]);
    for (int64_t lane = 1; lane < count; ++lane) {
      streams.push_back(own_stream(device, lane));
      begin.block(streams.back());
    }
  }
  void join() {
    for (size_t lane = 1; lane < streams.size(); ++lane) {
      at::cuda::CUDAEvent end;
      end.record(streams[lane]);
      end.block(streams[0]);
    }
  }
  std::vector<c10::cuda::CUDAStream> streams;
};

Lanes::Lanes(torch::Device device, int64_t count) {
  if (has_device_graphs(device) && count > 1) state_ = std::make_unique<State>(device, count);
}

Lanes::~Lanes() {
  try {
    join();
  } catch (const std::exception&) {
    // The device's error has been, or will be, reported elsewhere.
  }
}

void Lanes::on(int64_t lane, const std::function<void()>& work) {
  if (!state_) return work();
  const c10::cuda::CUDAStreamGuard guard(state_->streams.at(static_cast<size_t>(lane)));
  work();
}

void Lanes::join() {
  const auto state = std::move(state_);
  if (state) state->join();
}

struct DeviceGraph::State {
  std::unique_ptr<at::cuda::CUDAGraph> graph;
  std::function<void()> work;  // where there are no device graphs
};

void DeviceGraph::record(const std::function<void()>& work) {
  if (!has_device_graphs(device_)) {
    state_->work = work;
    return;
  }
  auto next = std::make_unique<at::cuda::CUDAGraph>();
  // The pool outlives the exchange only if the graph that owns it does.
  if (state_->graph)
    next->capture_begin(state_->graph->pool());
  else
    next->capture_begin();
  try {
    work();
    next->capture_end();
  } catch (...) {
    // The stream must not stay in its recording. What broke it is the message worth having, and the
    // next launch would report what this leaves behind.
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

struct Lanes::State {};
Lanes::Lanes(torch::Device, int64_t) {}
Lanes::~Lanes() = default;
void Lanes::on(int64_t, const std::function<void()>& work) {
  work();
}
void Lanes::join() {}

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
    fmt::print(stderr, "warning: {} could not be recorded as a CUDA graph: {}\n", what,
               first_line(error.what()));
    return false;
  }
}

}  // namespace remcaps
