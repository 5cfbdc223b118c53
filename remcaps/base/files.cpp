#include "remcaps/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <streambuf>
#include <vector>

#include "remcaps/base/error.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

/// An open file, closed at the end.
class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags, mode_t mode = 0)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Writes everything, also after interruptions and short writes. False: errno says why not.
bool write_all(int descriptor, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

/// A stream buffer over a file descriptor that remembers why writing failed.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor), buffer_(1 << 16) { empty(); }

  /// errno of the write that failed; 0 if none did.
  int error() const { return error_; }

 protected:
  int_type overflow(int_type letter) override {
    if (!flush()) return traits_type::eof();
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    return sputc(traits_type::to_char_type(letter));
  }
  int sync() override { return flush() ? 0 : -1; }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (size < epptr() - pptr()) return std::streambuf::xsputn(text, size);
    return flush() && write(text, static_cast<size_t>(size)) ? size : 0;
  }

 private:
  bool flush() {
    const bool written = write(pbase(), static_cast<size_t>(pptr() - pbase()));
    empty();
    return written;
  }
  bool write(const char* text, size_t size) {
    if (error_ == 0 && !write_all(descriptor_, text, size)) error_ = errno;
    return error_ == 0;
  }
  void empty() { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  int descriptor_;
  int error_ = 0;
  std::vector<char> buffer_;
};

void write_to(const OpenFile& file, const fs::path& path,
              const std::function<void(std::ostream&)>& write) {
  DescriptorBuffer buffer(file.descriptor());
  std::ostream out(&buffer);
  write(out);
  out.flush();
  check(out.good(), "{}: writing failed: {}", path.string(),
        buffer.error() != 0 ? std::strerror(buffer.error()) : "unknown error");
}

void flush_to_disk(const OpenFile& file, const fs::path& path) {
  const int error = file.is_open() && ::fsync(file.descriptor()) == 0 ? 0 : errno;
  // Some file systems cannot flush a folder (EINVAL). The rename is still atomic there.
  check(error == 0 || error == EINVAL, "{}: cannot flush to disk: {}", path.string(),
        std::strerror(error));
}

// A device or a pipe (/dev/stdout, /dev/null): there is no old content to keep, and a rename would
// put a plain file in its place. /dev/stdout may lead to a plain file.
bool is_stream(const fs::path& path) {
  if (path.string().starts_with("/dev/std") || path.string().starts_with("/dev/fd/")) return true;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// A new file in the folder of `target`, which it replaces once it is complete. Until then it has
/// no name, so that nothing is left of it however the program ends. Where the file system has no
/// such files (NFS), it has a name that nobody can have known, and is removed at the end.
class TemporaryFile {
 public:
  /// The file has the permissions of `target`, or those of any new file if there is no target.
  explicit TemporaryFile(const fs::path& target) : path_(folder_of(target) / random_name()) {
    const std::optional<mode_t> mode = permissions(target);
    file_.emplace(folder_of(target), O_WRONLY | O_TMPFILE, mode.value_or(0666));
    if (!file_->is_open() || ::access(link_to_file().c_str(), F_OK) != 0) {
      file_.emplace(path_, O_WRONLY | O_CREAT | O_EXCL, mode.value_or(0666));
      has_name_ = file_->is_open();
    }
    check(file_->is_open(), "{}: cannot write: {}", target.string(), std::strerror(errno));
    // open() has applied the umask. A file system without permissions may refuse: no harm.
    if (mode) [[maybe_unused]]
      const int refused = ::fchmod(file_->descriptor(), *mode);
  }
  ~TemporaryFile() {
    if (has_name_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const OpenFile& file() const { return *file_; }

  void replace(const fs::path& target) {
    // A link cannot take the place of a file, so the file has a name for a moment.
    if (!has_name_)
      has_name_ = ::linkat(AT_FDCWD, link_to_file().c_str(), AT_FDCWD, path_.c_str(),
                           AT_SYMLINK_FOLLOW) == 0;
    const bool replaced = has_name_ && ::rename(path_.c_str(), target.c_str()) == 0;
    check(replaced, "{}: cannot write: {}", target.string(), std::strerror(errno));
    has_name_ = false;
  }

 private:
  static std::string random_name() {
    std::random_device random;
    return fmt::format(".remcaps-{:08x}{:08x}.tmp", random(), random());
  }
  static std::optional<mode_t> permissions(const fs::path& file) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return status.st_mode & 0777;
  }
  std::string link_to_file() const { return fmt::format("/proc/self/fd/{}", file_->descriptor()); }

  fs::path path_;
  std::optional<OpenFile> file_;
  bool has_name_ = false;
};

}  // namespace

void write_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  if (is_stream(path)) {
    const OpenFile stream(path, O_WRONLY | O_APPEND);
    check(stream.is_open(), "{}: cannot write: {}", path.string(), std::strerror(errno));
    return write_to(stream, path, write);
  }
  TemporaryFile temporary(path);
  write_to(temporary.file(), path, write);
  // After a crash the new file is there only if both its bytes and its folder's entry are on disk.
  flush_to_disk(temporary.file(), path);
  temporary.replace(path);
  flush_to_disk(OpenFile(folder_of(path), O_RDONLY | O_DIRECTORY), path);
}

void write_atomically(const fs::path& path, std::string_view text) {
  write_atomically(path, [text](std::ostream& out) {
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  });
}

void append_to_file(const fs::path& path, std::string_view text) {
  const OpenFile file(path, O_WRONLY | O_APPEND | O_NOFOLLOW);
  check(file.is_open() || errno != ELOOP, "{}: a symbolic link; expected a file to append to",
        path.string());
  struct stat before {};
  if (!file.is_open() || ::fstat(file.descriptor(), &before) != 0)
    fail("{}: cannot append: {}", path.string(), std::strerror(errno));
  if (!write_all(file.descriptor(), text.data(), text.size())) {
    const int error = errno;
    [[maybe_unused]] const int refused = ::ftruncate(file.descriptor(), before.st_size);
    fail("{}: cannot append: {}", path.string(), std::strerror(error));
  }
  if (::fsync(file.descriptor()) != 0)
    fail("{}: cannot flush to disk: {}", path.string(), std::strerror(errno));
}

std::string read_file(const fs::path& path, size_t most) {
  check(!is_folder(path), "{}: is a folder; expected a file", path.string());
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);  // opening a pipe must not wait for its writer
  struct stat status {};
  check(file.is_open() && ::fstat(file.descriptor(), &status) == 0, "{}: cannot read: {}",
        path.string(), std::strerror(errno));
  check(S_ISREG(status.st_mode), "{}: a device or a pipe; expected a plain file", path.string());
  const auto too_large = [&] { fail("{}: more than {} bytes", path.string(), most); };
  if (static_cast<size_t>(status.st_size) > most) too_large();
  std::string text;
  text.reserve(static_cast<size_t>(status.st_size));
  std::vector<char> piece(1 << 16);
  while (true) {
    const ssize_t count = ::read(file.descriptor(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    check(count >= 0, "{}: reading failed: {}", path.string(), std::strerror(errno));
    if (count == 0) return text;
    if (static_cast<size_t>(count) > most - text.size()) too_large();
    text.append(piece.data(), static_cast<size_t>(count));
  }
}

bool stays_below(const fs::path& relative) {
  return !relative.empty() && !relative.is_absolute() &&
         std::find(relative.begin(), relative.end(), "..") == relative.end();
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error && is_folder(path), "{}: cannot create the folder: {}", path.string(),
        error ? error.message() : "a file of that name is in the way");
}

void prepare_output(const fs::path& file) {
  check(!is_folder(file), "{}: a folder; expected a file to write", file.string());
  if (is_stream(file)) {
    if (::access(file.c_str(), W_OK) != 0)
      fail("{}: cannot write: {}", file.string(), std::strerror(errno));
    return;
  }
  const fs::path folder = folder_of(file);
  make_folder(folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    fail("{}: cannot write: {}", file.string(), std::strerror(errno));
}

}  // namespace remcaps
