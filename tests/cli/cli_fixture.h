// A folder to run the program in, and a short training run on real Fashion-MNIST images.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "remcaps/base/files.h"
#include "tests/cli/program.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
      GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  }

  ProgramResult remcaps(const std::vector<std::string>& arguments,
                        const Program::Options& options = {}) const {
    return run_program(folder_.path(), arguments, options);
  }

  /// `train` of Eff-CapsNet on 96 images, 6 steps an epoch.
  static std::vector<std::string> short_training(const std::string& out,
                                                 const std::vector<std::string>& more = {},
                                                 int64_t epochs = 2) {
    std::vector<std::string> arguments = {"train", "fashion-mnist/eff-capsnet", "--out", out};
    for (const char* setting : {"dataset.limit_train=96", "dataset.limit_test=32",
                                "dataset.validation=32", "train.batch=16", "metrics.every=1"})
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), {"--device", "cpu", "--epochs", std::to_string(epochs)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// For suites whose tests begin with the same files: the first test makes them in its folder, the
  /// others get a copy. `kept`, a static of the suite, holds it; nothing is kept if making
  /// failed.
  template <typename Make>
  void begin_with(std::optional<TemporaryFolder>& kept, const Make& make) {
    constexpr auto kAll = std::filesystem::copy_options::recursive;
    if (kept) return std::filesystem::copy(kept->path(), folder_.path(), kAll);
    make();
    if (HasFatalFailure()) return;
    std::filesystem::copy(folder_.path(), kept.emplace().path(), kAll);
  }

  /// Error messages are one line on stderr.
  static void expect_one_line(const ProgramResult& result, int exit_code, const std::string& part) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  TemporaryFolder folder_;
  ScopedVariable recipes_ = {"REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES};
  // Tests run side by side: waiting threads of one would take the cores of the other.
  const ScopedVariable threads_ = {"OMP_NUM_THREADS", "1"};
};

}  // namespace remcaps::testing
