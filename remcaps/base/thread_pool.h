// The threads behind parallel.h.
//
// A thread that has nothing to do polls for tens of microseconds and then sleeps. The caller takes
// part in its own work: if all threads are busy, or the cores belong to other processes, it does
// all of it and waits for nobody who has not started.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace remcaps {

/// Waits a moment for `there`; false if it did not come.
template <typename There>
bool poll(const There& there) {
  // Tens of microseconds: as long as the pause between two loops of a network, and as long as it
  // takes to wake a thread that sleeps.
  constexpr int kPolls = 2000;
  for (int i = 0; i < kPolls; ++i) {
    if (there()) return true;
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  return there();
}

class ThreadPool {
 public:
  /// The pool of the process. It is never destroyed: its threads sleep until the process ends.
  static ThreadPool& instance();

  /// work(context, share) for each share < shares, on the caller and up to shares - 1 other
  /// threads. Returns when all are done. Throws the first exception that one of them threw. Several
  /// threads may call it at a time.
  void run(int shares, void (*work)(void* context, int share), void* context);

  /// Whether the calling thread is inside run().
  static bool is_inside();

 private:
  struct Job {
    void (*work)(void*, int);
    void* context;
    int shares, claimed = 0;
    std::atomic<int> unfinished;
    std::exception_ptr thrown = nullptr;
  };

  void start_threads(int wanted);
  void serve();
  /// Claims a share of a job; -1 if none is left. The caller holds the mutex.
  int claim(Job& job);
  void do_share(Job& job, int share);

  std::mutex mutex_;
  std::condition_variable work_there_, work_done_;
  std::vector<Job*> open_;  ///< jobs with shares that nobody has claimed
  std::atomic<int> open_count_ = 0;
  int threads_ = 0;
};

}  // namespace remcaps
