#include "remcaps/base/files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <functional>
#include <utility>

#include "remcaps/base/error.h"
#include "tests/temporary_folder.h"

namespace {
// Takes the place of write() below, if set.
std::function<ssize_t(int, const void*, size_t)> write_instead;

ssize_t real_write(int descriptor, const void* bytes, size_t size) {
  using Function = ssize_t (*)(int, const void*, size_t);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "write"));
  return real(descriptor, bytes, size);
}

bool nameless_files = true;
}  // namespace

// These replace the C library's functions in this program.
extern "C" int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_TMPFILE) == O_TMPFILE && !nameless_files) {
    errno = EOPNOTSUPP;
    return -1;
  }
  using Function = int (*)(const char*, int, mode_t);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "open"));
  return real(path, flags, mode);
}

extern "C" ssize_t write(int descriptor, const void* bytes, size_t size) {
  return write_instead ? write_instead(descriptor, bytes, size)
                       : real_write(descriptor, bytes, size);
}

namespace remcaps {
namespace {

namespace fs = std::filesystem;

/// Writes at most `piece` bytes at a time, is interrupted before each piece, and fails with `error`
/// after `room` bytes.
class TroubledWrites {
 public:
  explicit TroubledWrites(size_t piece, size_t room = 1 << 30, int error = ENOSPC) {
    write_instead = [=, room = room, interrupt = true](int descriptor, const void* bytes,
                                                       size_t size) mutable -> ssize_t {
      if (std::exchange(interrupt, !interrupt)) {
        errno = EINTR;
        return -1;
      }
      if (room == 0) {
        errno = error;
        return -1;
      }
      const ssize_t written = real_write(descriptor, bytes, std::min({size, piece, room}));
      room -= static_cast<size_t>(written);
      return written;
    };
  }
  ~TroubledWrites() { write_instead = nullptr; }
};

/// A file system on which every file has a name.
struct OnlyNamedFiles {
  OnlyNamedFiles() { nameless_files = false; }
  ~OnlyNamedFiles() { nameless_files = true; }
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

int mode_of(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<int>(status.st_mode & 07777) : -1;
}

int entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(WriteAtomically, ReplacesTheOldFile) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  write_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, AFailureLeavesTheOldFileAndNothingElse) {
  const auto write_half = [] {
    testing::TemporaryFolder folder;
    write_atomically(folder / "a", "old");
    EXPECT_THROW(write_atomically(folder / "a",
                                  [](std::ostream& out) {
                                    out << "half";
                                    fail("no more");
                                  }),
                 Error);
    EXPECT_EQ(read_file(folder / "a"), "old");
    EXPECT_EQ(entries(folder.path()), 1);
  };
  write_half();
  const OnlyNamedFiles named;
  write_half();
}

TEST(WriteAtomically, AProgramThatASignalEndsLeavesTheOldFileAndNothingElse) {
  testing::TemporaryFolder folder;
  if (const int file = open(folder.path().c_str(), O_WRONLY | O_TMPFILE, 0600); file >= 0)
    close(file);
  else
    GTEST_SKIP() << "every file has a name on this file system";
  write_atomically(folder / "a", "old");
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      write_atomically(folder / "a", [&](std::ostream& out) {
        out << "half" << std::flush;
        raise(signal);
      });
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(read_file(folder / "a"), "old");
    EXPECT_EQ(entries(folder.path()), 1);
  }
}

TEST(WriteAtomically, ReplacesFilesWhereEveryFileHasAName) {
  testing::TemporaryFolder folder;
  const OnlyNamedFiles named;
  write_atomically(folder / "a", "old");
  ASSERT_EQ(::chmod((folder / "a").c_str(), 0640), 0);
  write_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(mode_of(folder / "a"), 0640);
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, AFullDiskLeavesTheOldFileAndNothingElse) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  const TroubledWrites full(1 << 20, /*room=*/4096);
  EXPECT_EQ(message_of([&] { write_atomically(folder / "a", std::string(1 << 20, 'x')); }),
            (folder / "a").string() + ": writing failed: No space left on device");
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, ALimitOfFileSizesIsAnErrorAndDoesNotEndTheProcess) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tiny{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
  const std::string error =
      message_of([&] { write_atomically(folder / "a", std::string(1 << 20, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error, (folder / "a").string() + ": writing failed: File too large");
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, GoesOnAfterInterruptionsAndShortWrites) {
  testing::TemporaryFolder folder;
  std::string text;
  for (int number = 0; number < 50'000; ++number) text += std::to_string(number) + ' ';
  {
    const TroubledWrites troubled(1000);
    write_atomically(folder / "whole", text);
    write_atomically(folder / "pieces", [&](std::ostream& out) {
      for (size_t at = 0; at < text.size(); at += 7) out << text.substr(at, 7);
    });
  }
  EXPECT_EQ(read_file(folder / "whole"), text);
  EXPECT_EQ(read_file(folder / "pieces"), text);
}

TEST(WriteAtomically, AReplacedFileKeepsItsPermissionsAndANewOneFollowsTheUmask) {
  testing::TemporaryFolder folder;
  const mode_t before = ::umask(027);
  write_atomically(folder / "new", "text");
  for (const int mode : {0600, 0666, 0444}) {
    write_atomically(folder / "old", "text");
    ASSERT_EQ(::chmod((folder / "old").c_str(), static_cast<mode_t>(mode)), 0);
    write_atomically(folder / "old", "other text");
    EXPECT_EQ(mode_of(folder / "old"), mode);
  }
  ::umask(before);
  EXPECT_EQ(mode_of(folder / "new"), 0640);
}

TEST(WriteAtomically, NobodyCanKnowTheNameOfTheTemporaryFile) {
  testing::TemporaryFolder folder;
  const OnlyNamedFiles named;
  const auto name_while_writing = [&] {
    std::string name;
    write_atomically(folder / "a", [&](std::ostream&) {
      for (const auto& entry : fs::directory_iterator(folder.path()))
        if (entry.path().extension() == ".tmp") name = entry.path().filename().string();
    });
    return name;
  };
  const std::string first = name_while_writing();
  EXPECT_THAT(first, ::testing::StartsWith("."));
  EXPECT_NE(first, name_while_writing());
}

TEST(WriteAtomically, TakesTheLongestNameOfTheFileSystem) {
  testing::TemporaryFolder folder;
  const fs::path path = folder / std::string(255, 'n');
  write_atomically(path, "text");
  EXPECT_EQ(read_file(path), "text");
}

TEST(AppendToFile, GoesOnAfterInterruptionsAndShortWrites) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old\n");
  {
    const TroubledWrites troubled(3);
    append_to_file(folder / "a", "a new row\n");
  }
  EXPECT_EQ(read_file(folder / "a"), "old\na new row\n");
}

TEST(AppendToFile, AFailureLeavesNoHalfRow) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old\n");
  {
    const TroubledWrites troubled(3, /*room=*/5, EIO);
    EXPECT_EQ(message_of([&] { append_to_file(folder / "a", "a new row\n"); }),
              (folder / "a").string() + ": cannot append: Input/output error");
  }
  EXPECT_EQ(read_file(folder / "a"), "old\n");
  EXPECT_THAT(message_of([&] { append_to_file(folder / "missing", "row"); }),
              ::testing::HasSubstr("missing: cannot append: No such file"));
}

TEST(WriteAtomically, APipeIsWrittenToAndStaysOne) {
  testing::TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_NO_THROW(prepare_output(pipe));
  write_atomically(pipe, "text");
  char text[16] = "";
  EXPECT_EQ(read(reader, text, sizeof(text)), 4);
  EXPECT_STREQ(text, "text");
  EXPECT_TRUE(fs::is_fifo(pipe)) << "as /dev/null must stay what it is";
  close(reader);
}

TEST(WriteAtomically, ReplacesASymbolicLinkAndNotTheFileItLeadsTo) {
  testing::TemporaryFolder folder;
  make_folder(folder / "elsewhere");
  write_atomically(folder / "elsewhere/a", "old");
  for (const char* leads_to : {"elsewhere/a", "elsewhere/missing"}) {
    fs::create_symlink(leads_to, folder / "link");
    write_atomically(folder / "link", "new");
    EXPECT_FALSE(fs::is_symlink(folder / "link"));
    EXPECT_EQ(read_file(folder / "link"), "new");
    fs::remove(folder / "link");
  }
  EXPECT_EQ(read_file(folder / "elsewhere/a"), "old");
  EXPECT_EQ(entries(folder / "elsewhere"), 1);
}

TEST(AppendToFile, DoesNotWriteThroughASymbolicLink) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  fs::create_symlink("a", folder / "link");
  EXPECT_THROW(append_to_file(folder / "link", "new"), Error);
  EXPECT_EQ(read_file(folder / "a"), "old");
}

TEST(PrepareOutput, MakesTheFolderAndNamesWhatStandsInTheWay) {
  testing::TemporaryFolder folder;
  prepare_output(folder / "new/sub/file");
  EXPECT_TRUE(fs::is_directory(folder / "new/sub"));
  EXPECT_EQ(entries(folder / "new/sub"), 0);
  EXPECT_THROW(prepare_output(folder / "new"), Error) << "a folder";
  write_atomically(folder / "a", "text");
  EXPECT_THROW(prepare_output(folder / "a/file"), Error) << "below a file";
  EXPECT_NO_THROW(prepare_output(folder / "a")) << "may be replaced";
  EXPECT_EQ(read_file(folder / "a"), "text");
}

TEST(WriteAtomically, AMissingFolderIsOneClearLine) {
  testing::TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { write_atomically(folder / "no/such/file", "text"); }),
              ::testing::HasSubstr("no/such/file: cannot write: No such file"));
}

TEST(ReadFile, NamesTheFile) {
  EXPECT_EQ(message_of([] { read_file("/no/such/file"); }),
            "/no/such/file: cannot read: No such file or directory");
}

TEST(ReadFile, DevicesPipesAndLargeFilesAreRefused) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(message_of([] { read_file("/dev/zero"); }),
            "/dev/zero: a device or a pipe; expected a plain file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { read_file(folder / "pipe"); }),
              ::testing::HasSubstr("pipe: a device or a pipe"));
  write_atomically(folder / "large", "12345");
  EXPECT_EQ(read_file(folder / "large", 5), "12345");
  EXPECT_THAT(message_of([&] { read_file(folder / "large", 4); }),
              ::testing::HasSubstr("large: more than 4 bytes"));
}

TEST(ReadFile, AnErrorOfTheDiskIsOneClearLine) {
  // Nothing is mapped at address 0: reading there is an I/O error.
  EXPECT_EQ(message_of([] { read_file("/proc/self/mem"); }),
            "/proc/self/mem: reading failed: Input/output error");
}

}  // namespace
}  // namespace remcaps
