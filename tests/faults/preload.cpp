// A library for LD_PRELOAD that makes one system call of a program fail.
//
//   FAULT=write:17:ENOSPC   the 17th write fails with ENOSPC
//   FAULT=write:17:short    the 17th write writes half of its bytes
//   FAULT=count             nothing fails
//   FAULT_FOLDER=DIR        only files below DIR count, for open, write, fsync and rename
//   FAULT_REPORT=FILE       at the end: how often each was called, as "open 12"; with FAULT=count also a
//                           number for each call that says by which way the program came to it
//   FAULT_CLOCK=jumps       the wall clock jumps by years, forward and back, each time it is looked at
//
// Calls: open, write, fsync, rename, mmap, malloc.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

enum Call { kOpen, kWrite, kFsync, kRename, kMmap, kMalloc, kCalls };
constexpr const char* kNames[kCalls] = {"open", "write", "fsync", "rename", "mmap", "malloc"};

std::atomic<long> counts[kCalls];
int failing_call = -1;
long failing_number = 0;
int failing_error = 0;  // 0: a short write
const char* folder = nullptr;
std::atomic<bool> ready{false};

constexpr long kMostWays = 1 << 16;
uint32_t ways[kCalls][kMostWays];
bool counting = false;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int error_number(const char* name) {
  struct Known {
    const char* name;
    int number;
  };
  for (const Known known : {Known{"ENOSPC", ENOSPC},
                            {"EIO", EIO},
                            {"EINTR", EINTR},
                            {"EMFILE", EMFILE},
                            {"ENOMEM", ENOMEM}})
    if (strcmp(known.name, name) == 0) return known.number;
  return 0;
}

// A hash of the functions that called each other until here.
uint32_t way() {
  void* callers[32];
  const int depth = backtrace(callers, 32);
  uint32_t hash = 2166136261u;
  for (int i = 0; i < depth; ++i)
    hash = (hash ^ static_cast<uint32_t>(reinterpret_cast<uintptr_t>(callers[i]))) * 16777619u;
  return hash;
}

// Whether this call is the one that fails.
bool fails(Call call) {
  if (!ready.load(std::memory_order_relaxed)) return false;
  const long number = ++counts[call];
  if (counting && number <= kMostWays) ways[call][number - 1] = way();
  return number == failing_number && failing_call == call;
}

bool is_below(const char* path) {
  if (folder == nullptr || !ready) return false;
  return path[0] != '/' || strncmp(path, folder, strlen(folder)) == 0;
}

bool is_below(int descriptor) {
  if (folder == nullptr || !ready) return false;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return path[0] == '/' && is_below(static_cast<const char*>(path));
}

__attribute__((constructor)) void start() {
  folder = getenv("FAULT_FOLDER");
  if (const char* fault = getenv("FAULT")) {
    char name[16] = "", error[16] = "";
    if (sscanf(fault, "%15[^:]:%ld:%15s", name, &failing_number, error) == 3) {
      for (int i = 0; i < kCalls; ++i)
        if (strcmp(kNames[i], name) == 0) failing_call = i;
      failing_error = error_number(error);
    }
    counting = strcmp(fault, "count") == 0;
    if (counting) way();  // the first time it loads a library
    ready = true;
  }
}

__attribute__((destructor)) void finish() {
  if (!ready.exchange(false)) return;
  if (const char* report = getenv("FAULT_REPORT")) {
    FILE* out = fopen(report, "w");
    if (out == nullptr) return;
    for (int i = 0; i < kCalls; ++i) {
      const long count = counts[i];
      fprintf(out, "%s %ld", kNames[i], count);
      for (long k = 0; counting && k < count && k < kMostWays; ++k) fprintf(out, " %u", ways[i][k]);
      fputc('\n', out);
    }
    fclose(out);
  }
}

// Years that the wall clock is wrong now.
time_t jump() {
  static const bool jumps = getenv("FAULT_CLOCK") != nullptr;
  static std::atomic<int> looks{0};
  constexpr time_t kYear = 365 * 86400;
  return jumps ? (looks++ % 7 - 3) * kYear : 0;
}

int open_with(const char* name, const char* path, int flags, mode_t mode) {
  if (is_below(path) && fails(kOpen)) {
    errno = failing_error;
    return -1;
  }
  return next<int (*)(const char*, int, mode_t)>(name)(path, flags, mode);
}

mode_t mode_of(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_with("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_with("open64", path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {  // std::fstream
  static const auto real = next<FILE* (*)(const char*, const char*)>("fopen");
  if (!is_below(path) || !fails(kOpen)) return real(path, mode);
  errno = failing_error;
  return nullptr;
}

FILE* fopen64(const char* path, const char* mode) {
  return fopen(path, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (!is_below(descriptor) || !fails(kWrite)) return real(descriptor, bytes, size);
  if (failing_error == 0) return real(descriptor, bytes, (size + 1) / 2);
  errno = failing_error;
  return -1;
}

ssize_t writev(int descriptor, const iovec* parts, int count) {  // std::fstream, larger pieces
  static const auto real = next<ssize_t (*)(int, const iovec*, int)>("writev");
  if (!is_below(descriptor) || !fails(kWrite)) return real(descriptor, parts, count);
  if (failing_error == 0) return real(descriptor, parts, 1);
  errno = failing_error;
  return -1;
}

int fsync(int descriptor) {
  static const auto real = next<int (*)(int)>("fsync");
  if (!is_below(descriptor) || !fails(kFsync)) return real(descriptor);
  errno = failing_error;
  return -1;
}

int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (!is_below(to) || !fails(kRename)) return real(from, to);
  errno = failing_error;
  return -1;
}

// What gives a finished file its name.
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  static const auto real = next<int (*)(int, const char*, int, const char*, int)>("linkat");
  if (!is_below(to) || !fails(kRename)) return real(from_folder, from, to_folder, to, flags);
  errno = failing_error;
  return -1;
}

void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  static const auto real = next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  if (descriptor < 0 || !is_below(descriptor) || !fails(kMmap))
    return real(address, length, protection, flags, descriptor, offset);
  errno = failing_error;
  return MAP_FAILED;
}

void* __libc_malloc(size_t size);
void* malloc(size_t size) {
  // Small pieces are asked for by the thousand, and by libraries that end the program without them.
  if (size < 65536 || !fails(kMalloc)) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}

void* __libc_memalign(size_t alignment, size_t size);
int posix_memalign(void** out, size_t alignment, size_t size) {  // libtorch's tensors
  *out = size < 65536 || !fails(kMalloc) ? __libc_memalign(alignment, size) : nullptr;
  return *out == nullptr ? ENOMEM : 0;
}

int clock_gettime(clockid_t clock, timespec* now) {
  static const auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (clock == CLOCK_REALTIME && result == 0) now->tv_sec += jump();
  return result;
}

int gettimeofday(timeval* now, void* zone) {
  static const auto real = next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = real(now, zone);
  if (result == 0) now->tv_sec += jump();
  return result;
}

time_t time(time_t* out) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
}
