// SHA-256 checksums with OpenSSL, for checking data files and downloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace remcaps {

/// Whether this build can compute checksums (OpenSSL was there). If not, Sha256 is an error that
/// says so.
bool can_checksum();

class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  /// 64 lower-case hexadecimal digits. The object cannot be used afterwards.
  std::string finish();

 private:
  std::shared_ptr<void> context_;  // EVP_MD_CTX; OpenSSL's headers stay out of this one
};

/// The SHA-256 of a file's bytes as they are.
std::string sha256_of_file(const std::filesystem::path& path);

/// A file's content, decompressed if it is gzip.
struct ContentSummary {
  int64_t bytes = 0;
  std::string sha256;  ///< empty if this build cannot compute it
};
ContentSummary summarize_content(const std::filesystem::path& path);

}  // namespace remcaps
