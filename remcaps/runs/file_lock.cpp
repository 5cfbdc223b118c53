#include "remcaps/runs/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

constexpr size_t kNoteBytes = 512;

// note_of_holder() locks the file for a moment to see whether it can, so a refusal counts only if
// it is repeated.
bool lock_exclusively(int fd) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
  }
  return false;
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::filesystem::path& path) {
  for (;;) {
    // Over NFS an exclusive lock needs a file that is open for writing.
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    check(fd >= 0, "{}: cannot open: {}", path.string(), std::strerror(errno));
    if (!lock_exclusively(fd)) {
      const int error = errno;
      ::close(fd);
      if (error == EWOULDBLOCK) return std::nullopt;
      fail("{}: cannot lock: {}", path.string(), std::strerror(error));
    }
    FileLock lock(path, fd);
    if (lock.is_current()) {
      [[maybe_unused]] const int ignored = ::ftruncate(fd, 0);  // a dead process's note
      return lock;
    }
    ::close(std::exchange(lock.fd_, -1));
  }
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());  // before the lock is released: nobody else can hold this file
  ::close(fd_);
}

bool FileLock::is_current() const {
  struct stat locked {
  }, named{};
  return ::fstat(fd_, &locked) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
}

void FileLock::set_note(std::string_view text) {
  // Always the same number of bytes in one write: a reader sees the old note or the new one.
  std::string block(text.substr(0, kNoteBytes));
  block.resize(kNoteBytes, ' ');
  [[maybe_unused]] const ssize_t ignored = ::pwrite(fd_, block.data(), block.size(), 0);
}

std::optional<std::string> FileLock::note_of_holder(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::optional<std::string> note;
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    note.emplace(kNoteBytes, ' ');
    const ssize_t size = ::pread(fd, note->data(), note->size(), 0);
    note->resize(size > 0 ? static_cast<size_t>(size) : 0);
    note->erase(note->find_last_not_of(' ') + 1);
  }
  ::close(fd);
  return note;
}

}  // namespace remcaps
