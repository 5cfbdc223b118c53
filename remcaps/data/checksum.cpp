#include "remcaps/data/checksum.h"

#include <fmt/format.h>

#if defined(REMCAPS_HAVE_LIBCRYPTO)
#include <openssl/evp.h>
#endif

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/data/formats/gz_reader.h"

namespace remcaps {

#if defined(REMCAPS_HAVE_LIBCRYPTO)

bool can_checksum() {
  return true;
}

Sha256::Sha256()
    : context_(EVP_MD_CTX_new(), [](void* p) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(p)); }) {
  check(EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_.get()), EVP_sha256(), nullptr) == 1,
        "OpenSSL cannot compute SHA-256");
}

void Sha256::update(const void* data, size_t bytes) {
  check(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_.get()), data, bytes) == 1,
        "OpenSSL cannot compute SHA-256");
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_.get()), digest.data(), nullptr) == 1,
        "OpenSSL cannot compute SHA-256");
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

#else

bool can_checksum() {
  return false;
}

Sha256::Sha256() {
  fail("this build of remcaps cannot check SHA-256 checksums (OpenSSL was missing)");
}

void Sha256::update(const void*, size_t) {}  // never called: there is no Sha256 without OpenSSL

std::string Sha256::finish() {
  return "";
}

#endif

std::string sha256_of_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  check(file.good(), "{}: cannot read: {}", path.string(), std::strerror(errno));
  Sha256 sum;
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0)
    sum.update(buffer.data(), static_cast<size_t>(file.gcount()));
  check(!file.bad(), "{}: reading failed: {}", path.string(), std::strerror(errno));
  return sum.finish();
}

ContentSummary summarize_content(const std::filesystem::path& path) {
  GzReader file(path);
  std::optional<Sha256> sum;
  if (can_checksum()) sum.emplace();
  std::vector<char> buffer(1 << 20);
  ContentSummary summary;
  while (const size_t got = file.read(buffer.data(), buffer.size())) {
    summary.bytes += static_cast<int64_t>(got);
    if (sum) sum->update(buffer.data(), got);
  }
  if (sum) summary.sha256 = sum->finish();
  return summary;
}

}  // namespace remcaps
