// The input of a fuzzer as a file, in memory only.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace remcaps::fuzz {

class InputFile {
 public:
  InputFile(const uint8_t* bytes, size_t size) : descriptor_(::memfd_create("input", 0)) {
    if (::write(descriptor_, bytes, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace remcaps::fuzz
