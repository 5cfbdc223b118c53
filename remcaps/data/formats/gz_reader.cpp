#include "remcaps/data/formats/gz_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"

namespace remcaps {
namespace fs = std::filesystem;

GzReader::GzReader(const fs::path& path) : path_(path) {
  check(!fs::is_directory(path), "{}: is a folder; expected a file", path.string());
  errno = 0;
  gzFile file = gzopen(path.c_str(), "rb");
  check(file != nullptr, "{}: cannot read: {}", path.string(), std::strerror(errno));
  gzbuffer(file, 256 * 1024);
  file_ = file;
}

GzReader::~GzReader() {
  gzclose(static_cast<gzFile>(file_));
}

size_t GzReader::read(void* out, size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 30;  // gzread counts in int
  auto* file = static_cast<gzFile>(file_);
  size_t done = 0;
  while (done < bytes) {
    const auto piece = static_cast<unsigned>(std::min(bytes - done, kPiece));
    const int got = gzread(file, static_cast<char*>(out) + done, piece);
    if (got > 0) done += static_cast<size_t>(got);
    if (got == static_cast<int>(piece)) continue;
    int code = Z_OK;
    const char* message = gzerror(file, &code);
    if (code == Z_BUF_ERROR)
      fail("{}: the compressed data end after {} bytes (file truncated?)", path_.string(),
           with_commas(gztell(file)));
    check(code == Z_OK || code == Z_STREAM_END, "{}: damaged after {} decompressed bytes: {}",
          path_.string(), with_commas(gztell(file)),
          code == Z_ERRNO ? std::strerror(errno) : message);
    break;
  }
  return done;
}

void GzReader::read_exactly(void* out, size_t bytes, const std::string& what) {
  const size_t got = read(out, bytes);
  check(got == bytes, "{}: {} bytes of {}; expected {} (file truncated?)", path_.string(),
        with_commas(static_cast<int64_t>(got)), what, with_commas(static_cast<int64_t>(bytes)));
}

void GzReader::expect_room(int64_t bytes, const std::string& what) const {
  constexpr int64_t kDeflateRatio = 1032;  // deflate makes at most so many bytes of one
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path_, error));
  const bool known = !error && fs::is_regular_file(path_);
  const bool plain = gzdirect(static_cast<gzFile>(file_)) != 0;
  check(!known || bytes / (plain ? 1 : kDeflateRatio) <= size,
        "{}: {} bytes cannot hold {} bytes of {} (file truncated?)", path_.string(),
        with_commas(size), with_commas(bytes), what);
}

void GzReader::expect_end(const std::string& what) {
  char next = 0;
  check(read(&next, 1) == 0, "{}: more bytes than {} needs", path_.string(), what);
}

fs::path plain_or_gz(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"})
    if (fs::is_regular_file(folder / (name + suffix))) return folder / (name + suffix);
  return {};
}

}  // namespace remcaps
