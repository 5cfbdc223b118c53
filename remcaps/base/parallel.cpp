#include "remcaps/base/parallel.h"

#include <cstdlib>

#include "remcaps/base/cpu.h"
#include "remcaps/base/thread_limit.h"
#if !defined(REMCAPS_ONE_THREAD)
#include "remcaps/base/thread_pool.h"
#endif

namespace remcaps {
namespace {

thread_local int limit = 0;  // 0: none

#if !defined(REMCAPS_ONE_THREAD)
// $OMP_NUM_THREADS, which libtorch obeys, too; else one for each core.
int threads_by_default() {
  static const int threads = [] {
    const char* wanted = std::getenv("OMP_NUM_THREADS");
    const int count = wanted == nullptr ? 0 : std::atoi(wanted);
    return count > 0 ? count : usable_cores();
  }();
  return threads;
}

std::atomic<int (*)()> threads_of_process = threads_by_default;
#endif

}  // namespace

ThreadLimit::ThreadLimit(int threads) : before_(limit) {
  limit = threads;
}

ThreadLimit::~ThreadLimit() {
  limit = before_;
}

StageQueue::StageQueue(int64_t count, int threads)
    : count_(count), threads_(threads), next_(new Counter[static_cast<size_t>(threads)]) {
  for (int part = 0; part < threads; ++part)
    next_[static_cast<size_t>(part)].value = first_of(part);
  unfinished_.value = count;
}

int64_t StageQueue::next(int thread) {
  for (int n = 0; n < threads_; ++n) {
    const int part = (thread + n) % threads_;
    std::atomic<int64_t>& next = next_[static_cast<size_t>(part)].value;
    if (next.load() >= first_of(part + 1)) continue;
    const int64_t task = next.fetch_add(1);
    if (task < first_of(part + 1)) return task;
  }
  return -1;
}

#if defined(REMCAPS_ONE_THREAD)

void StageQueue::finish(int64_t tasks) {
  unfinished_.value -= tasks;
}

void StageQueue::wait() {}

int thread_count() {
  return 1;
}

void follow_thread_count(int (*)()) {}

void detail::run_on_threads(int threads, void (*work)(void* context, int thread), void* context) {
  for (int thread = 0; thread < threads; ++thread) work(context, thread);
}

#else

void StageQueue::finish(int64_t tasks) {
  if (unfinished_.value.fetch_sub(tasks) == tasks) unfinished_.value.notify_all();
}

void StageQueue::wait() {
  std::atomic<int64_t>& unfinished = unfinished_.value;
  poll([&] { return unfinished.load() == 0; });
  for (int64_t left = unfinished.load(); left > 0; left = unfinished.load()) unfinished.wait(left);
}

int thread_count() {
  if (ThreadPool::is_inside()) return 1;
  return limit > 0 ? limit : threads_of_process.load()();
}

void follow_thread_count(int (*source)()) {
  threads_of_process = source;
}

void detail::run_on_threads(int threads, void (*work)(void* context, int thread), void* context) {
  if (threads <= 1)
    work(context, 0);
  else
    ThreadPool::instance().run(threads, work, context);
}

#endif

}  // namespace remcaps
