// Takes connections on a port of 127.0.0.1, one at a time.
#pragma once

#include <functional>
#include <thread>

namespace remcaps::testing {

class LoopbackServer {
 public:
  /// `serve` gets each connection's socket, in a thread of its own, and leaves it open.
  explicit LoopbackServer(std::function<void(int connection)> serve);
  ~LoopbackServer();
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  int port() const { return port_; }

 private:
  int socket_ = -1, port_ = 0;
  std::thread thread_;
};

}  // namespace remcaps::testing
