// A web server for one test: loopback only, one connection at a time, able to misbehave.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/data/loopback_server.h"

namespace remcaps::testing {

class HttpServer {
 public:
  /// "http://127.0.0.1:PORT"
  std::string address() const;

  /// Serves `content` at `path` ("/file").
  void serve(const std::string& path, const std::string& content);

  using Send = std::function<bool(std::string_view)>;
  /// At `path` the answer is what `answer` sends, its head too. `send` gives false once the client
  /// is gone.
  void serve_by(const std::string& path, std::function<void(const Send& send)> answer);

  /// The next responses break off after this many bytes of their body, one entry each.
  void break_off_after(std::vector<size_t> bytes);

  /// Ignores Range headers, as simple servers do.
  void ignore_ranges() { ranges_ = false; }

  /// Gives no ETag to know a file's state by.
  void send_no_tags() { tags_ = false; }

  /// "GET /file" or "GET /file from 1000", one for each request so far.
  std::vector<std::string> requests() const;

 private:
  void answer(int connection);

  std::atomic<bool> ranges_{true}, tags_{true};
  mutable std::mutex mutex_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::function<void(const Send&)>> answers_;
  std::vector<size_t> breaks_;
  std::vector<std::string> requests_;
  const LoopbackServer server_{[this](int connection) { answer(connection); }};
};

}  // namespace remcaps::testing
