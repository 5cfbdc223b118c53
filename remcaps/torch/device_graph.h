// CUDA graphs: work on a device that is recorded once and then replayed.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

namespace remcaps {

/// Whether work on this device can be recorded at all: on a GPU, in a CUDA build.
bool has_device_graphs(torch::Device device);

/// Makes a stream other than the default one the current stream of this thread while it lives,
/// since nothing can be recorded on the default stream. It waits for the device when it begins and
/// when it ends, so that tensors may be used on both sides. Does nothing if there are no device
/// graphs.
class OwnStream {
 public:
  explicit OwnStream(torch::Device device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs independent pieces of work side by side on several CUDA streams: a small piece leaves much
/// of a GPU idle. Stream 0 is the stream that is current at the construction. All streams see the
/// work done on it before, and work on it after join() sees theirs. A tensor made on one stream
/// must not be used on another. A tensor made before and used on them must live until the join. May
/// be recorded. If there are no device graphs, the work just runs.
class ParallelStreams {
 public:
  ParallelStreams(torch::Device device, int64_t count);
  ~ParallelStreams();  ///< joins, also if an exception is thrown
  ParallelStreams(const ParallelStreams&) = delete;
  ParallelStreams& operator=(const ParallelStreams&) = delete;

  /// Calls `work` at once, with this stream as the current one. Pieces of work on one stream run
  /// one after the other.
  void on(int64_t stream, const std::function<void()>& work);
  void join();

 private:
  struct State;
  std::unique_ptr<State> state_;  // null if there is only one stream
};

/// A recording. Its work must have run before, so that cuDNN has chosen its algorithms and
/// workspaces exist. It must not wait for the device or depend on host values that change: a replay
/// repeats the same kernels on the same memory. If there are no device graphs, the work itself is
/// kept and called again.
class DeviceGraph {
 public:
  explicit DeviceGraph(torch::Device device);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  /// Records `work` without running it. Replaces an earlier recording and takes over its memory. On
  /// a GPU an OwnStream must exist. If `work` throws, nothing is recorded and the exception goes
  /// on.
  void record(const std::function<void()>& work);
  /// As record(), for work that need not be recorded: if it cannot be, prints a warning that names
  /// `what` and returns false.
  bool try_record(const std::string& what, const std::function<void()>& work);
  bool recorded() const;
  void replay();

 private:
  struct State;
  torch::Device device_;
  std::unique_ptr<State> state_;
};

}  // namespace remcaps
