#include "remcaps/base/thread_pool.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace remcaps {
namespace {

constexpr int kMaxThreads = 1024;

thread_local bool inside = false;

}  // namespace

ThreadPool& ThreadPool::instance() {
  static ThreadPool& pool = *new ThreadPool;
  return pool;
}

bool ThreadPool::is_inside() {
  return inside;
}

void ThreadPool::start_threads(int wanted) {
  for (; threads_ < std::min(wanted, kMaxThreads); ++threads_) {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {
      return;  // fewer threads: the caller does more
    }
  }
}

int ThreadPool::claim(Job& job) {
  if (job.claimed == job.shares) return -1;
  const int share = job.claimed++;
  if (job.claimed == job.shares) {
    std::erase(open_, &job);
    open_count_ = static_cast<int>(open_.size());
  }
  return share;
}

void ThreadPool::do_share(Job& job, int share) {
  std::exception_ptr thrown;
  const bool before = inside;
  inside = true;
  try {
    job.work(job.context, share);
  } catch (...) {
    thrown = std::current_exception();
  }
  inside = before;
  const std::lock_guard lock(mutex_);
  if (thrown && !job.thrown) job.thrown = thrown;
  // The job may be gone as soon as the mutex is free.
  if (--job.unfinished == 0) work_done_.notify_all();
}

void ThreadPool::serve() {
  while (true) {
    poll([&] { return open_count_.load() > 0; });
    std::unique_lock lock(mutex_);
    work_there_.wait(lock, [&] { return !open_.empty(); });
    Job& job = *open_.front();
    const int share = claim(job);
    lock.unlock();
    do_share(job, share);
  }
}

void ThreadPool::run(int shares, void (*work)(void*, int), void* context) {
  Job job{work, context, shares, 0, shares};
  std::unique_lock lock(mutex_);
  start_threads(shares - 1);
  // `run` returns when no thread holds the job any more.
  // cppcheck-suppress danglingLifetime
  open_.push_back(&job);
  open_count_ = static_cast<int>(open_.size());
  for (int share = claim(job); share >= 0; share = claim(job)) {
    lock.unlock();
    if (share == 0) {
      if (shares == 2)
        work_there_.notify_one();
      else
        work_there_.notify_all();
    }
    do_share(job, share);
    lock.lock();
  }
  lock.unlock();
  poll([&] { return job.unfinished.load() == 0; });
  lock.lock();
  work_done_.wait(lock, [&] { return job.unfinished.load() == 0; });
  lock.unlock();
  if (job.thrown) std::rethrow_exception(job.thrown);
}

}  // namespace remcaps
