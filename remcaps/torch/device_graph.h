// Work on a device that is recorded once and then replayed: a CUDA graph.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

namespace remcaps {

/// Whether work on this device can be recorded at all: on a GPU, in a CUDA build.
bool has_device_graphs(torch::Device device);

/// Makes a stream of the project's own the current one of this thread as long as it lives, since
/// nothing can be recorded on the default stream. The device is idle when it begins and when it
/// ends, so that tensors may cross. Does nothing where there are no device graphs.
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

/// Pieces of work that do not depend on each other, side by side: a small one leaves much of a GPU
/// idle. Every lane is a stream; lane 0 is the stream that is current where the lanes begin. They
/// see what was done there before, and what is done there after join() sees theirs. A tensor that
/// is made in one lane must not be used in another, and one made before and used in them must live
/// until the join. May be recorded. Where there are no device graphs, the work just runs.
class Lanes {
 public:
  Lanes(torch::Device device, int64_t count);
  ~Lanes();  ///< joins, so that an exception leaves no lane behind
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// Calls `work` at once, with the lane's stream as the current one. Pieces of one lane follow
  /// each other.
  void on(int64_t lane, const std::function<void()>& work);
  void join();

 private:
  struct State;
  std::unique_ptr<State> state_;  // none where there is one lane, or no streams
};

/// A recording. What it calls must have run before (cuDNN's choice of algorithms, workspaces), must
/// not wait for the device, and must not depend on host values that change: the replay repeats the
/// same kernels on the same memory. Where there are no device graphs, the work itself is kept and
/// called again.
class DeviceGraph {
 public:
  explicit DeviceGraph(torch::Device device);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  /// Records without running, in place of an earlier recording, whose memory it takes over. On a
  /// GPU an OwnStream must be current. Throws what `work` throws; nothing is recorded then.
  void record(const std::function<void()>& work);
  /// The same for work that can do without: false, and a warning that names `what`, where it cannot
  /// be recorded.
  bool try_record(const std::string& what, const std::function<void()>& work);
  bool recorded() const;
  void replay();

 private:
  struct State;
  torch::Device device_;
  std::unique_ptr<State> state_;
};

}  // namespace remcaps
