// The table of kernels: every kernel has an entry, and every entry agrees with its plain twin.
#include "remcaps/capsule/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "remcaps/ops/convolution.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;

// "convolution/layout" for convolution/layout_cuda.cu; empty for a file that implements no kernel.
std::string kernel_of(const fs::path& file) {
  for (const std::string ending : {"_cpu.cpp", "_simd.cpp", "_cuda.cu"})
    if (const std::string name = file.filename().string(); name.ends_with(ending))
      return file.parent_path().filename().string() + "/" +
             name.substr(0, name.size() - ending.size());
  return {};
}

TEST(KernelChecks, EveryFileOfKernelsHasAnEntry) {
  std::set<std::string> checked;
  for (const KernelCheck& check : kernel_checks())
    checked.insert(check.kernels.begin(), check.kernels.end());
  int found = 0;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(REMCAPS_KERNELS_FOLDER)) {
    const std::string kernel = kernel_of(entry.path());
    // pictures/ has no plain twin: tests/data/images_test.cpp compares it with known values.
    if (kernel.empty() || kernel.starts_with("simd/") || kernel.starts_with("cuda/") ||
        kernel.starts_with("pictures/"))
      continue;
    ++found;
    EXPECT_TRUE(std::any_of(checked.begin(), checked.end(),
                            [&](const std::string& name) { return kernel.starts_with(name); }))
        << kernel << " has no entry in the table of `remcaps check`";
  }
  EXPECT_GT(found, 10);
}

TEST(KernelChecks, EveryConvolutionPathHasAnEntry) {
  std::set<std::string> names;
  for (const KernelCheck& check : kernel_checks()) names.insert(check.name);
  for (const ConvolutionPath path : kConvolutionPaths)
    EXPECT_EQ(names.count(std::string("convolution by ") + path_name(path)),
              path == ConvolutionPath::kPlain ? 0 : 1)
        << path_name(path);
}

TEST(KernelChecks, EveryKernelAgreesWithItsPlainTwin) {
  for (const std::string& device : kernel_devices())
    for (const KernelCheck& check : kernel_checks()) {
      SCOPED_TRACE(check.name + " on " + device);
      const std::vector<Finding> findings = run_checks({check}, torch::Device(device), /*seed=*/1);
      for (const Finding& finding : findings)
        EXPECT_TRUE(finding.passed()) << finding.path << ", " << finding.shape << ": off by "
                                      << finding.error << ", allowed " << finding.tolerance;
    }
}

TEST(KernelChecks, TheKernelsOfEveryCpuAreRun) {
  std::vector<std::string> paths;
  for (const Finding& finding : run_checks(op_checks(), torch::kCPU, /*seed=*/2))
    paths.push_back(finding.path);
  for (const std::string path :
       {"convolution: map", "convolution: map's gradient", "packed convolution: map",
        "sparse convolution, 40 % left: map", "primary squash: capsules", "channel squash: map",
        "margin loss: loss", "update: LOBSTER, Adam, mask"})
    EXPECT_THAT(paths, ::testing::Contains(path));
}

TEST(KernelChecks, NanIsNotClose) {
  EXPECT_FALSE((Finding{"", "", std::nan(""), 1}).passed());
}

}  // namespace
}  // namespace remcaps
