#include "tests/data/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace remcaps::testing {

HttpServer::HttpServer() {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(where);
  auto* generic = reinterpret_cast<sockaddr*>(&where);
  if (socket_ < 0 || ::bind(socket_, generic, length) != 0 || ::listen(socket_, 8) != 0 ||
      ::getsockname(socket_, generic, &length) != 0)
    throw std::runtime_error("no loopback socket");
  port_ = ntohs(where.sin_port);
  thread_ = std::thread([this] { run(); });
}

HttpServer::~HttpServer() {
  ::shutdown(socket_, SHUT_RDWR);  // wakes accept()
  ::close(socket_);
  thread_.join();
}

std::string HttpServer::address() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

void HttpServer::serve(const std::string& path, const std::string& content) {
  const std::lock_guard lock(mutex_);
  files_[path] = content;
}

void HttpServer::break_off_after(std::vector<size_t> bytes) {
  const std::lock_guard lock(mutex_);
  breaks_ = std::move(bytes);
}

std::vector<std::string> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::run() {
  while (true) {
    const int connection = ::accept(socket_, nullptr, nullptr);
    if (connection < 0) return;
    answer(connection);
    ::close(connection);
  }
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

  const std::lock_guard lock(mutex_);
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
  for (size_t sent = 0; sent < response.size();) {
    const ssize_t n =
        ::send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

}  // namespace remcaps::testing
