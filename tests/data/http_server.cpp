#include "tests/data/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

namespace remcaps::testing {
namespace {

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

std::string HttpServer::address() const {
  return fmt::format("http://127.0.0.1:{}", server_.port());
}

void HttpServer::serve(const std::string& path, const std::string& content) {
  const std::lock_guard lock(mutex_);
  files_[path] = content;
}

void HttpServer::serve_by(const std::string& path, std::function<void(const Send&)> answer) {
  const std::lock_guard lock(mutex_);
  answers_[path] = std::move(answer);
}

void HttpServer::break_off_after(std::vector<size_t> bytes) {
  const std::lock_guard lock(mutex_);
  breaks_ = std::move(bytes);
}

std::vector<std::string> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::answer(int connection) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(connection, buffer, sizeof(buffer), 0);
    if (got <= 0) return;
    request.append(buffer, static_cast<size_t>(got));
  }
  const std::string path = request.substr(4, request.find(' ', 4) - 4);
  const size_t range = request.find("Range: bytes=");
  const size_t condition = request.find("If-Range: ");

  std::unique_lock lock(mutex_);
  if (const auto own = answers_.find(path); own != answers_.end()) {
    requests_.push_back("GET " + path);
    const auto answer_by = own->second;
    lock.unlock();  // it may take long
    return answer_by([&](std::string_view bytes) { return send_all(connection, bytes); });
  }
  const std::string tag =
      fmt::format("\"{:x}\"", std::hash<std::string>{}(files_.contains(path) ? files_[path] : ""));
  const bool same = condition == std::string::npos ||
                    request.compare(condition + 10, tag.size() + 2, tag + "\r\n") == 0;
  const bool ranged = ranges_ && range != std::string::npos && same;
  const size_t from = ranged ? std::strtoull(request.c_str() + range + 13, nullptr, 10) : 0;
  requests_.push_back(from > 0 ? fmt::format("GET {} from {}", path, from) : "GET " + path);
  const auto found = files_.find(path);
  std::string head, body;
  if (found == files_.end()) {
    head = "HTTP/1.1 404 Not Found\r\n";
    body = "nothing here";
  } else if (ranged && from >= found->second.size()) {
    head = "HTTP/1.1 416 Range Not Satisfiable\r\n";
  } else {
    body = found->second.substr(from);
    head = ranged ? fmt::format("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{}/{}\r\n",
                                from, found->second.size() - 1, found->second.size())
                  : "HTTP/1.1 200 OK\r\n";
  }
  if (tags_ && found != files_.end()) head += fmt::format("ETag: {}\r\n", tag);
  head += fmt::format("Content-Length: {}\r\nConnection: close\r\n\r\n", body.size());
  if (found != files_.end() && !breaks_.empty()) {
    body.resize(std::min(body.size(), breaks_.front()));
    breaks_.erase(breaks_.begin());
  }
  const std::string response = head + body;
  send_all(connection, response);
}

}  // namespace remcaps::testing
