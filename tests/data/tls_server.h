// A web server with a certificate that nobody signed.
#pragma once

#include <string>

#include "tests/data/loopback_server.h"

namespace remcaps::testing {

class TlsServer {
 public:
  /// Answers every request with `content`, if the client takes the certificate.
  explicit TlsServer(std::string content);

  /// "https://127.0.0.1:PORT"
  std::string address() const;

 private:
  LoopbackServer server_;
};

}  // namespace remcaps::testing
