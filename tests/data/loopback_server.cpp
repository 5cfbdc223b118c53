#include "tests/data/loopback_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace remcaps::testing {

LoopbackServer::LoopbackServer(std::function<void(int)> serve) {
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
  thread_ = std::thread([this, serve = std::move(serve)] {
    while (true) {
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0) return;
      serve(connection);
      ::close(connection);
    }
  });
}

LoopbackServer::~LoopbackServer() {
  ::shutdown(socket_, SHUT_RDWR);  // wakes accept()
  thread_.join();
  ::close(socket_);
}

}  // namespace remcaps::testing
