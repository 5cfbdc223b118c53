// Loops on several threads. Code compiled with REMCAPS_ONE_THREAD has one, and needs no
// thread_pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace remcaps {

/// The number of threads that parallel work of the calling thread is divided over. Inside such work
/// it is 1.
int thread_count();

/// From now on `source` gives this number wherever there is no ThreadLimit. A program with libtorch
/// passes libtorch's number.
void follow_thread_count(int (*source)());

namespace detail {
/// Calls work(context, t) for each t < threads on up to so many threads, and waits for all of them.
/// A thread may take several t, one after the other. Throws the first exception that was thrown.
void run_on_threads(int threads, void (*work)(void* context, int thread), void* context);
}  // namespace detail

/// work(thread) on `threads` threads.
template <typename Work>
void run_on_threads(int threads, const Work& work) {
  detail::run_on_threads(
      threads, [](void* context, int thread) { (*static_cast<const Work*>(context))(thread); },
      const_cast<void*>(static_cast<const void*>(&work)));
}

/// Hands out tasks 0..count-1 one at a time. A thread that has to share its core with another
/// process takes fewer of them, and nobody waits for it.
class TaskQueue {
 public:
  explicit TaskQueue(int64_t count) : count_(count) {}

  /// Nothing if all have been handed out.
  std::optional<int64_t> next() {
    const int64_t task = next_.fetch_add(1);
    return task < count_ ? std::optional(task) : std::nullopt;
  }

 private:
  int64_t count_;
  std::atomic<int64_t> next_ = 0;
};

/// As TaskQueue, for work in several stages on the same threads: when all tasks of one stage are done,
/// the next may begin. A thread takes the tasks of its own part first, whose data are in its cache
/// from the stage before, and then those of others.
class StageQueue {
 public:
  StageQueue(int64_t count, int threads);

  /// work(task) for the tasks that this thread takes. It must not throw if others wait for it.
  template <typename Work>
  void take(int thread, const Work& work) {
    int64_t taken = 0;
    for (int64_t task = next(thread); task >= 0; task = next(thread), ++taken) work(task);
    if (taken > 0) finish(taken);
  }
  /// Waits until all tasks are done. This thread has called take().
  void wait();

 private:
  static constexpr size_t kCacheLine = 64;
  struct alignas(kCacheLine) Counter {
    std::atomic<int64_t> value;
  };

  int64_t first_of(int thread) const { return count_ * thread / threads_; }
  int64_t next(int thread);  ///< -1 if all have been handed out
  void finish(int64_t tasks);

  int64_t count_;
  int threads_;
  std::unique_ptr<Counter[]> next_;  ///< of each part
  Counter unfinished_;
};

/// Calls work(first, last) for pieces of begin..end, on several threads. Every piece except the
/// last has at least `grain` elements. There are a few pieces per thread, so that a slow thread
/// takes fewer. A thread takes its own part first: in several loops over the same data it sees the
/// same of them.
template <typename Work>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Work& work) {
  constexpr int64_t kPiecesPerThread = 4;
  if (begin >= end) return;
  const int64_t grains = (end - begin + grain - 1) / std::max<int64_t>(grain, 1);
  const int64_t threads = std::min<int64_t>(thread_count(), grains);
  if (threads <= 1) {
    work(begin, end);
    return;
  }
  const int64_t pieces = threads * kPiecesPerThread;
  const int64_t piece = std::max(grain, (end - begin + pieces - 1) / pieces);
  StageQueue queue((end - begin + piece - 1) / piece, static_cast<int>(threads));
  run_on_threads(static_cast<int>(threads), [&](int thread) {
    queue.take(thread, [&](int64_t task) {
      const int64_t first = begin + task * piece;
      work(first, std::min(end, first + piece));
    });
  });
}

/// work() once on every thread, for work that shares a TaskQueue.
template <typename Work>
void on_every_thread(const Work& work) {
  run_on_threads(thread_count(), [&](int) { work(); });
}

}  // namespace remcaps
