#include "remcaps/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "remcaps/base/error.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// A rename is only durable once both the file's bytes and the folder's entry are on disk.
void flush_to_disk(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags);
  check(fd >= 0, "{}: cannot open to flush: {}", path.string(), std::strerror(errno));
  const int rc = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems do not support fsync on a folder; the rename is still atomic there.
  check(rc == 0 || error == EINVAL, "{}: cannot flush to disk: {}", path.string(),
        std::strerror(error));
}

// /dev/stdout, /dev/null, a pipe: there is no old content to keep, and a rename would put a file in
// its place.
bool is_stream(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

void write_to(std::ofstream& out, const fs::path& path,
              const std::function<void(std::ostream&)>& write) {
  check(out.good(), "{}: cannot write: {}", path.string(), std::strerror(errno));
  write(out);
  out.flush();
  check(out.good(), "{}: writing failed: {}", path.string(),
        errno != 0 ? std::strerror(errno) : "unknown error");
  out.close();
  check(!out.fail(), "{}: writing failed: {}", path.string(), std::strerror(errno));
}

void replace_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path temporary =
      folder / fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid());
  try {
    errno = 0;
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    write_to(out, path, write);
    flush_to_disk(temporary, O_RDONLY);
    fs::rename(temporary, path);
    flush_to_disk(folder, O_RDONLY | O_DIRECTORY);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    fail("{}: cannot write: {}", path.string(), error.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace

void write_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  if (is_stream(path)) {
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    return write_to(out, path, write);
  }
  // What a link leads to is replaced, not the link.
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : path;
  replace_file(error ? path : target, write);
}

void write_atomically(const fs::path& path, std::string_view text) {
  write_atomically(path, [text](std::ostream& out) {
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  });
}

std::string read_file(const fs::path& path) {
  check(!fs::is_directory(path), "{}: is a folder; expected a file", path.string());
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  check(in.good(), "{}: cannot read: {}", path.string(), std::strerror(errno));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  check(!in.bad(), "{}: reading failed: {}", path.string(), std::strerror(errno));
  return text;
}

bool stays_below(const fs::path& relative) {
  return !relative.empty() && !relative.is_absolute() &&
         std::find(relative.begin(), relative.end(), "..") == relative.end();
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error && fs::is_directory(path), "{}: cannot create the folder: {}", path.string(),
        error ? error.message() : "a file of that name is in the way");
}

void prepare_output(const fs::path& file) {
  check(!fs::is_directory(file), "{}: a folder; expected a file to write", file.string());
  if (is_stream(file)) {
    check(::access(file.c_str(), W_OK) == 0, "{}: cannot write: {}", file.string(),
          std::strerror(errno));
    return;
  }
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  make_folder(folder);
  check(::access(folder.c_str(), W_OK | X_OK) == 0, "{}: cannot write: {}", file.string(),
        std::strerror(errno));
}

}  // namespace remcaps
