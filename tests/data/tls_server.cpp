#include "tests/data/tls_server.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>

namespace remcaps::testing {
namespace {

// A certificate for 127.0.0.1 that is valid today. Nobody signed it.
std::shared_ptr<X509> certificate_of(EVP_PKEY* key) {
  const std::shared_ptr<X509> made(X509_new(), X509_free);
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), key);
  X509_NAME* name = X509_get_subject_name(made.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("127.0.0.1"), -1, -1, 0);
  X509_set_issuer_name(made.get(), name);
  X509_EXTENSION* hosts =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(made.get(), hosts, -1);
  X509_EXTENSION_free(hosts);
  X509_sign(made.get(), key, EVP_sha256());
  return made;
}

std::shared_ptr<SSL_CTX> context_of_its_own() {
  const std::shared_ptr<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  SSL_CTX_use_certificate(context.get(), certificate_of(key.get()).get());
  SSL_CTX_use_PrivateKey(context.get(), key.get());
  return context;
}

}  // namespace

TlsServer::TlsServer(std::string content)
    : server_([content = std::move(content), context = context_of_its_own()](int connection) {
        const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), SSL_free);
        SSL_set_fd(tls.get(), connection);
        char request[4096];
        if (SSL_accept(tls.get()) != 1 || SSL_read(tls.get(), request, sizeof(request)) <= 0)
          return;
        const std::string response =
            fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                        content.size(), content);
        SSL_write(tls.get(), response.data(), static_cast<int>(response.size()));
        SSL_shutdown(tls.get());
      }) {}

std::string TlsServer::address() const {
  return fmt::format("https://127.0.0.1:{}", server_.port());
}

}  // namespace remcaps::testing
