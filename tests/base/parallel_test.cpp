#include "remcaps/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "remcaps/base/thread_limit.h"

namespace remcaps {
namespace {

TEST(Parallel, EveryShareIsDoneOnce) {
  std::vector<std::atomic<int>> done(37);
  run_on_threads(37, [&](int share) { ++done[static_cast<size_t>(share)]; });
  for (const auto& count : done) EXPECT_EQ(count, 1);
}

TEST(Parallel, PiecesCoverTheRangeAndKeepTheGrain) {
  const ThreadLimit limit(4);
  std::vector<int> seen(1003, 0);
  parallel_for(0, 1003, 100, [&](int64_t first, int64_t last) {
    EXPECT_TRUE(last - first >= 100 || last == 1003) << first << ".." << last;
    for (int64_t i = first; i < last; ++i) ++seen[static_cast<size_t>(i)];
  });
  EXPECT_EQ(seen, std::vector<int>(1003, 1));
}

TEST(Parallel, TheLimitIsThatOfTheCallingThread) {
  const ThreadLimit limit(3);
  EXPECT_EQ(thread_count(), 3);
  {
    const ThreadLimit inner(1);
    EXPECT_EQ(thread_count(), 1);
  }
  EXPECT_EQ(thread_count(), 3);
}

TEST(Parallel, WorkInsideWorkIsNotDividedAgain) {
  const ThreadLimit limit(4);
  std::atomic<int> total = 0;
  run_on_threads(4, [&](int) {
    EXPECT_EQ(thread_count(), 1);
    parallel_for(0, 10, 1,
                 [&](int64_t first, int64_t last) { total += static_cast<int>(last - first); });
  });
  EXPECT_EQ(total, 40);
  EXPECT_EQ(thread_count(), 4);
}

TEST(Parallel, AnExceptionReachesTheCallerWhenAllSharesAreDone) {
  std::atomic<int> done = 0;
  const auto work = [&](int share) {
    ++done;
    if (share % 2 == 1) throw std::runtime_error("share");
  };
  EXPECT_THROW(run_on_threads(8, work), std::runtime_error);
  EXPECT_EQ(done, 8);
  run_on_threads(8, [&](int) { ++done; });  // the threads are still there
  EXPECT_EQ(done, 16);
}

TEST(Parallel, OtherThreadsTakePart) {
  // Each share waits until both have begun: one thread alone would wait for ever.
  std::atomic<int> begun = 0;
  run_on_threads(2, [&](int) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 2);
}

TEST(Parallel, SeveralThreadsMayUseItAtATime) {
  constexpr int kCallers = 4, kRounds = 200;
  std::vector<int64_t> sums(kCallers, 0);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&sums, caller] {
      const ThreadLimit limit(3);
      for (int round = 0; round < kRounds; ++round) {
        std::atomic<int64_t> sum = 0;
        parallel_for(0, 100, 1, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) sum += i;
        });
        sums[static_cast<size_t>(caller)] += sum;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<int64_t>(kCallers, kRounds * 4950));
}

TEST(StageQueue, AStageBeginsWhenTheOneBeforeIsDone) {
  constexpr int kThreads = 3;
  constexpr int64_t kTasks = 7;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<StageQueue>> stages;
    for (int stage = 0; stage < 4; ++stage)
      stages.push_back(std::make_unique<StageQueue>(kTasks, kThreads));
    std::vector<std::atomic<int>> done(stages.size());
    std::atomic<int> early = 0;
    run_on_threads(kThreads, [&](int thread) {
      for (size_t stage = 0; stage < stages.size(); ++stage) {
        stages[stage]->take(thread, [&](int64_t) {
          if (stage > 0 && done[stage - 1] != kTasks) ++early;
          ++done[stage];
        });
        stages[stage]->wait();
      }
    });
    for (const std::atomic<int>& count : done) EXPECT_EQ(count, kTasks);
    EXPECT_EQ(early, 0);
  }
}

TEST(StageQueue, AThreadTakesItsOwnPartFirst) {
  StageQueue queue(6, 3);
  std::vector<int64_t> taken;
  queue.take(1, [&](int64_t task) { taken.push_back(task); });
  EXPECT_EQ(taken, (std::vector<int64_t>{2, 3, 4, 5, 0, 1}));
  queue.take(0, [](int64_t) { FAIL(); });
  queue.wait();
}

}  // namespace
}  // namespace remcaps
