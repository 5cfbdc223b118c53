// A limit on the threads of parallel.h.
#pragma once

namespace remcaps {

/// While it lives, work that the calling thread starts is divided over so many threads.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

}  // namespace remcaps
