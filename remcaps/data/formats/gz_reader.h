// Files that may be gzip-compressed, read as a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace remcaps {

/// Reads a file and decompresses it if its content is gzip; its name does not matter.
class GzReader {
 public:
  explicit GzReader(const std::filesystem::path& path);
  ~GzReader();
  GzReader(const GzReader&) = delete;
  GzReader& operator=(const GzReader&) = delete;

  /// Reads up to `bytes`; fewer only at the end of the file. Error if the compressed stream is
  /// cut short or damaged.
  size_t read(void* out, size_t bytes);

  /// Reads exactly `bytes`; Error names the file, what was found and `what` was expected.
  void read_exactly(void* out, size_t bytes, const std::string& what);

  /// Error if the rest of the file cannot hold so many bytes. This is known before memory is taken
  /// for them.
  void expect_room(int64_t bytes, const std::string& what) const;

  /// Error if more bytes follow. `what` names what should have been the end.
  void expect_end(const std::string& what);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  void* file_ = nullptr;  // gzFile; zlib.h stays out of the header
};

/// `folder`/`name` or, if that is not there, `folder`/`name`.gz; empty if neither is there.
std::filesystem::path plain_or_gz(const std::filesystem::path& folder, const std::string& name);

}  // namespace remcaps
