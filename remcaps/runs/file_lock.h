// A lock that ends with its process, as a file that others can ask about.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace remcaps {

/// An exclusive flock(2) on a file, which is removed when the lock is released. If the process is
/// killed, the system releases the lock and the file stays: the next process takes it over. Over
/// NFS this holds between machines too.
class FileLock {
 public:
  /// Creates the file if need be. Nothing if another process holds the lock.
  static std::optional<FileLock> take(const std::filesystem::path& path);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

  /// Writes a short text to the file for others to read. A failure is ignored.
  void set_note(std::string_view text);

  /// The note of the process that holds the lock, perhaps empty; nothing if no process holds it.
  static std::optional<std::string> note_of_holder(const std::filesystem::path& path);

 private:
  FileLock(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  /// False if the process that held the lock before has removed the file.
  bool is_current() const;

  std::filesystem::path path_;
  int fd_;  ///< -1 after a move
};

}  // namespace remcaps
