#include "remcaps/base/parallel.h"

#include "remcaps/base/thread_limit.h"

#include <omp.h>

#include <exception>

namespace remcaps {

int thread_count() {
  return omp_in_parallel() ? 1 : omp_get_max_threads();
}

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}

ThreadLimit::~ThreadLimit() {
  omp_set_num_threads(before_);
}

void detail::run_on_threads(int threads, void (*work)(void* context, int thread), void* context) {
  if (threads <= 1) {
    work(context, 0);
    return;
  }
  std::exception_ptr thrown;
#pragma omp parallel num_threads(threads)
  {
    // OpenMP may give fewer threads than asked for: each then takes several shares.
    for (int thread = omp_get_thread_num(); thread < threads; thread += omp_get_num_threads()) {
      try {
        work(context, thread);
      } catch (...) {
#pragma omp critical(remcaps_first_exception)
        if (!thrown) thrown = std::current_exception();
      }
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace remcaps
