// The main() of every test program: the same process set-up as the program's own, for every test
// alike.
#include <gtest/gtest.h>
#include <torch/utils.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "remcaps/torch/runtime.h"

namespace {

// The tests of a suite share a process. Each test begins with the random numbers of a new process.
// A test fails if it changes the process: a later test might depend on what it changed.
class SharedProcess : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    torch::manual_seed(c10::default_rng_seed_val);
    environment_ = environment();
    folder_ = std::filesystem::current_path();
    threads_ = at::get_num_threads();
  }

  void OnTestEnd(const testing::TestInfo&) override {
    EXPECT_EQ(environment(), environment_) << "the test leaves environment variables changed";
    EXPECT_EQ(std::filesystem::current_path(), folder_) << "the test leaves its working folder";
    EXPECT_EQ(at::get_num_threads(), threads_) << "the test leaves the number of threads changed";
  }

  static std::set<std::string> environment() {
    std::set<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable)
      // The library's own settings of cuBLAS, which are made once in a process.
      if (!std::string_view(*variable).starts_with("CUBLAS")) variables.insert(*variable);
    return variables;
  }

  std::set<std::string> environment_;
  std::filesystem::path folder_;
  int threads_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  remcaps::prepare_process(argv);
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new SharedProcess);  // which owns it
  const int result = RUN_ALL_TESTS();
  // What CTest is told to take for a suite that was skipped as a whole.
  constexpr int kSkipped = 77;
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  const bool skipped = tests.skipped_test_count() > 0 && tests.successful_test_count() == 0;
  return result == 0 && skipped ? kSkipped : result;
}
