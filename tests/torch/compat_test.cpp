#include "remcaps/torch/compat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "tests/scoped_variable.h"

namespace remcaps {
namespace {

class GpuShareTest : public ::testing::Test {
 protected:
  testing::ScopedVariable share_ = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::nullopt};
};

TEST_F(GpuShareTest, IsRefusedToBf16) {
  for (const char* share : {"40", "99.5", "0"}) {
    share_.set(share);
    try {
      require_whole_gpu_for_bf16();
      ADD_FAILURE() << share;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(share) + " % of a GPU"));
    }
  }
}

TEST_F(GpuShareTest, WholeGpuIsNot) {
  EXPECT_NO_THROW(require_whole_gpu_for_bf16());
  for (const char* share : {"", "100", "100.0"}) {
    share_.set(share);
    EXPECT_NO_THROW(require_whole_gpu_for_bf16()) << share;
  }
}

}  // namespace
}  // namespace remcaps
