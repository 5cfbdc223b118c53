#include "remcaps/data/formats/archive.h"

#if defined(REMCAPS_HAVE_LIBARCHIVE)
#include <archive.h>
#include <archive_entry.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/gz_reader.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

constexpr size_t kUnpackBuffer = 1 << 20;

// The files that come out of one archive. What cannot be written, or is too much, is an Error.
class UnpackedFiles {
 public:
  UnpackedFiles(const fs::path& archive, int64_t most) : archive_(archive), left_(most) {}

  void open(const fs::path& path) {
    path_ = path;
    if (path.has_parent_path()) make_folder(path.parent_path());
    errno = 0;
    file_.open(path, std::ios::binary | std::ios::trunc);
    check(file_.good(), "{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  void write(const char* data, size_t bytes) {
    left_ -= static_cast<int64_t>(bytes);
    check(left_ >= 0, "{}: unpacks to more bytes than expected (at {})", archive_.string(),
          path_.filename().string());
    file_.write(data, static_cast<std::streamsize>(bytes));
    check(file_.good(), "{}: writing failed: {}", path_.string(), std::strerror(errno));
  }
  void close() {
    file_.close();
    check(!file_.fail(), "{}: writing failed: {}", path_.string(), std::strerror(errno));
  }

 private:
  fs::path archive_, path_;
  int64_t left_;
  std::ofstream file_;
};

}  // namespace

#if defined(REMCAPS_HAVE_LIBARCHIVE)
namespace {

using ArchiveReader = std::unique_ptr<archive, int (*)(archive*)>;

[[noreturn]] void fail_unpacking(const fs::path& path, archive* reader) {
  const char* message = archive_error_string(reader);
  fail("{}: damaged or truncated: {}", path.string(),
       message != nullptr ? message : "unknown error");
}

// Writes every regular file of an opened archive to its place.
void unpack_members(const fs::path& path, archive* reader, const PlaceMember& place, int64_t most) {
  UnpackedFiles files(path, most);
  std::vector<char> buffer(kUnpackBuffer);
  archive_entry* entry = nullptr;
  for (int code = 0; (code = archive_read_next_header(reader, &entry)) != ARCHIVE_EOF;) {
    if (code != ARCHIVE_OK) fail_unpacking(path, reader);
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr)
      continue;
    check(archive_entry_is_encrypted(entry) == 0, "{}: an encrypted archive", path.string());
    const char* name = archive_entry_pathname(entry);
    check(name != nullptr && stays_below(name), "{}: holds the path \"{}\", which leads out of it",
          path.string(), name != nullptr ? name : "");
    const fs::path target = place(name);
    if (target.empty()) continue;
    files.open(target);
    la_ssize_t got = 0;
    while ((got = archive_read_data(reader, buffer.data(), buffer.size())) > 0)
      files.write(buffer.data(), static_cast<size_t>(got));
    if (got != 0) fail_unpacking(path, reader);
    files.close();
  }
}

// Hands a decompressed tar stream to libarchive, which does not check gzip's own CRC. An Error must
// not pass through its C code, so it waits in `failure`.
struct TarStream {
  explicit TarStream(const fs::path& path) : file(path) {}
  GzReader file;
  std::vector<char> buffer = std::vector<char>(kUnpackBuffer);
  std::exception_ptr failure;

  size_t next() { return file.read(buffer.data(), buffer.size()); }
};

la_ssize_t read_tar_stream(archive* reader, void* user, const void** data) {
  auto* stream = static_cast<TarStream*>(user);
  *data = stream->buffer.data();
  try {
    return static_cast<la_ssize_t>(stream->next());
  } catch (...) {
    stream->failure = std::current_exception();
    archive_set_error(reader, EIO, "reading failed");
    return ARCHIVE_FATAL;
  }
}

}  // namespace

bool can_unpack_archives() {
  return true;
}

void unpack_tar(const fs::path& path, const PlaceMember& place, int64_t most) {
  TarStream stream(path);
  const ArchiveReader reader(archive_read_new(), archive_read_free);
  archive_read_support_format_tar(reader.get());
  try {
    if (archive_read_open(reader.get(), &stream, nullptr, read_tar_stream, nullptr) != ARCHIVE_OK)
      fail_unpacking(path, reader.get());
    unpack_members(path, reader.get(), place, most);
  } catch (const Error&) {
    if (stream.failure != nullptr) std::rethrow_exception(stream.failure);
    throw;
  }
  // libarchive takes an archive without its two last, empty blocks for whole.
  check(archive_filter_bytes(reader.get(), 0) > archive_read_header_position(reader.get()),
        "{}: ends without the mark of its end (file truncated?)", path.string());
  while (stream.next() > 0) {
  }  // gzip's CRC stands at the very end
}

void unpack_zip(const fs::path& path, const PlaceMember& place, int64_t most) {
  const ArchiveReader reader(archive_read_new(), archive_read_free);
  // Only with the directory at its end: without it members may be missing.
  archive_read_support_format_zip_seekable(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), kUnpackBuffer) != ARCHIVE_OK)
    fail_unpacking(path, reader.get());
  unpack_members(path, reader.get(), place, most);
}

#else

bool can_unpack_archives() {
  return false;
}

void unpack_tar(const fs::path& path, const PlaceMember&, int64_t) {
  fail("{}: this build of remcaps unpacks no archives (libarchive was missing)", path.string());
}

void unpack_zip(const fs::path& path, const PlaceMember& place, int64_t most) {
  unpack_tar(path, place, most);
}

#endif

void gunzip(const fs::path& from, const fs::path& to, int64_t most) {
  GzReader in(from);
  UnpackedFiles out(from, most);
  out.open(to);
  std::vector<char> buffer(kUnpackBuffer);
  while (const size_t got = in.read(buffer.data(), buffer.size())) out.write(buffer.data(), got);
  out.close();
}

int64_t sensible_unpacked_size(const fs::path& file) {
  constexpr int64_t kTimes = 100, kLeast = int64_t{64} << 20;
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  return error ? kLeast : std::max(kLeast, kTimes * size);
}

}  // namespace remcaps
