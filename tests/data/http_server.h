// A web server for one test: loopback only, one connection at a time, able to misbehave.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace remcaps::testing {

class HttpServer {
 public:
  HttpServer();
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// "http://127.0.0.1:PORT"
  std::string address() const;

  /// Serves `content` at `path` ("/file").
  void serve(const std::string& path, const std::string& content);

  /// The next responses break off after this many bytes of their body, one entry each.
  void break_off_after(std::vector<size_t> bytes);

  /// Ignores Range headers, as simple servers do.
  void ignore_ranges() { ranges_ = false; }

  /// Gives no ETag to know a file's state by.
  void send_no_tags() { tags_ = false; }

  /// "GET /file" or "GET /file from 1000", one for each request so far.
  std::vector<std::string> requests() const;

 private:
  void run();
  void answer(int connection);

  int socket_ = -1, port_ = 0;
  std::atomic<bool> ranges_{true}, tags_{true};
  mutable std::mutex mutex_;
  std::map<std::string, std::string> files_;
  std::vector<size_t> breaks_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace remcaps::testing
