#include "remcaps/base/cpu.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <cstring>

#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace {
// How many CPUs sched_getaffinity() below reports; 0: those of this machine.
int cpus_reported = 0;
}  // namespace

// Replaces the C library's function in this program.
extern "C" int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* set) noexcept {
  using Function = int (*)(pid_t, size_t, cpu_set_t*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sched_getaffinity"));
  if (cpus_reported == 0) return real(pid, bytes, set);
  if (static_cast<int>(bytes * 8) < cpus_reported) {
    errno = EINVAL;
    return -1;
  }
  std::memset(set, 0, bytes);
  for (int cpu = 0; cpu < cpus_reported; ++cpu) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  return 0;
}

namespace remcaps {
namespace {

TEST(UsableCores, AreCountedOnMachinesOfMoreThan1024) {
  const int here = usable_cores();
  EXPECT_GE(here, 1);
  const auto quota = group_cores("/sys/fs/cgroup", "/proc/self/cgroup");
  cpus_reported = 3000;
  const int there = usable_cores();
  cpus_reported = 0;
  EXPECT_EQ(there, std::min(3000, quota.value_or(3000)));
  EXPECT_LE(here, quota.value_or(here));
}

class GroupCores : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    make_folder((folder_ / file).parent_path());
    write_atomically(folder_ / file, text);
  }
  std::optional<int> cores() const { return group_cores(folder_ / "cgroup", folder_ / "own"); }
  const testing::TemporaryFolder folder_;
};

TEST_F(GroupCores, AreThoseOfAContainersQuotaRoundedUp) {
  EXPECT_EQ(cores(), std::nullopt);
  write("own", "0::/\n");
  EXPECT_EQ(cores(), std::nullopt);
  for (const auto& [text, expected] :
       std::vector<std::pair<std::string, std::optional<int>>>{{"200000 100000\n", 2},
                                                               {"150000 100000\n", 2},
                                                               {"1000 100000\n", 1},
                                                               {"max 100000\n", std::nullopt},
                                                               {"200000 0\n", std::nullopt},
                                                               {"\n", std::nullopt}}) {
    write("cgroup/cpu.max", text);
    EXPECT_EQ(cores(), expected) << text;
  }
}

TEST_F(GroupCores, AreTheFewestOfAGroupAndThoseAboveIt) {
  write("own", "0::/system.slice/training.service\n");
  write("cgroup/system.slice/training.service/cpu.max", "800000 100000\n");
  EXPECT_EQ(cores(), 8);
  write("cgroup/system.slice/cpu.max", "300000 100000\n");
  EXPECT_EQ(cores(), 3);
}

TEST_F(GroupCores, AreReadFromTheFirstVersionToo) {
  write("own", "5:memory:/a\n4:cpu,cpuacct:/docker/0123\n3:cpuset:/b\n");
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), std::nullopt);
  write("cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cores(), 3);
}

}  // namespace
}  // namespace remcaps
