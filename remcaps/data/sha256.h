// SHA-256 (FIPS 180-4), for checking downloads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace remcaps {

class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  /// 64 lower-case hexadecimal digits. The object is then done with.
  std::string finish();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t total_ = 0;
};

/// Of a file's bytes as they are.
std::string sha256_of_file(const std::filesystem::path& path);

/// Of a file's content, decompressed where it is gzip; `bytes` receives its length.
std::string sha256_of_content(const std::filesystem::path& path, int64_t* bytes = nullptr);

}  // namespace remcaps
