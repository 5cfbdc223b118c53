// Loops on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

namespace remcaps {

/// How many threads parallel work started here is divided over; 1 inside such work.
int thread_count();

namespace detail {
/// Calls work(context, t) for each t < threads, each on its own thread, and waits for all of them.
/// Throws the first exception that one of them threw.
void run_on_threads(int threads, void (*work)(void* context, int thread), void* context);
}  // namespace detail

/// work(thread) on `threads` threads.
template <typename Work>
void run_on_threads(int threads, const Work& work) {
  detail::run_on_threads(
      threads, [](void* context, int thread) { (*static_cast<const Work*>(context))(thread); },
      const_cast<void*>(static_cast<const void*>(&work)));
}

/// work(first, last) on pieces of begin..end: one piece per thread, of at least `grain` each.
template <typename Work>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Work& work) {
  if (begin >= end) return;
  const int64_t threads =
      std::min<int64_t>(thread_count(), (end - begin + grain - 1) / std::max<int64_t>(grain, 1));
  if (threads <= 1) {
    work(begin, end);
    return;
  }
  const int64_t piece = (end - begin + threads - 1) / threads;
  run_on_threads(static_cast<int>(threads), [&](int thread) {
    const int64_t first = begin + thread * piece;
    if (first < end) work(first, std::min(end, first + piece));
  });
}

/// work() once on every thread, for work that shares a TaskQueue.
template <typename Work>
void on_every_thread(const Work& work) {
  run_on_threads(thread_count(), [&](int) { work(); });
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

}  // namespace remcaps
