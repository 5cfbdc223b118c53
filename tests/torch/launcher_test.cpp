#include "remcaps/torch/launcher.h"

#include <gtest/gtest.h>

#include <list>

#include "remcaps/base/error.h"
#include "tests/scoped_variable.h"

namespace remcaps {
namespace {

using testing::ScopedVariable;

// Sets the variables of one launcher and removes those of all others.
class Variables {
 public:
  explicit Variables(const std::list<std::pair<std::string, std::string>>& set) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_USE_AGENT_STORE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
          "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"})
      variables_.emplace_back(name, std::nullopt);
    for (const auto& [name, value] : set) variables_.emplace_back(name, value);
  }
  ~Variables() {
    while (!variables_.empty()) variables_.pop_back();  // in reverse
  }

 private:
  std::list<ScopedVariable> variables_;
};

TEST(Launcher, WithoutVariablesThereIsNone) {
  EXPECT_FALSE((Variables({}), find_launch()));
  const Variables one({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(find_launch()->size, 1);
}

TEST(Launcher, ReadsTorchrun) {
  const Variables variables({{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "1234"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}});
  const auto launch = find_launch();
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->size, 4);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->address, "node1");
  EXPECT_EQ(launch->port, 1234);
  EXPECT_EQ(launch->agent, "/worker/attempt_2");
}

TEST(Launcher, ReadsSlurmStepsOnly) {
  const std::list<std::pair<std::string, std::string>> step = {
      {"SLURM_PROCID", "5"},  {"SLURM_STEP_NUM_TASKS", "8"},
      {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "gpu[07-08],cpu1"},
      {"SLURM_JOB_ID", "99"}, {"SLURM_STEP_ID", "0"}};
  {
    const Variables variables(step);
    const auto launch = find_launch();
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->rank, 5);
    EXPECT_EQ(launch->size, 8);
    EXPECT_EQ(launch->local_rank, 1);
    EXPECT_EQ(launch->address, "gpu07");
    EXPECT_GE(launch->port, 20000);
    EXPECT_LT(launch->port, 32000);
    EXPECT_EQ(find_launch()->port, launch->port);
  }
  // A batch script has these, but it is one process.
  const Variables batch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  EXPECT_FALSE(find_launch());
}

TEST(Launcher, ReadsOpenMpi) {
  const std::list<std::pair<std::string, std::string>> place = {
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  {
    const Variables variables(place);
    const auto launch = find_launch();
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->rank, 1);
    EXPECT_EQ(launch->address, "127.0.0.1");
  }
  auto machines = place;
  machines.back().second = "1";
  const Variables variables(machines);
  EXPECT_THROW(find_launch(), UsageError);
  const ScopedVariable address("MASTER_ADDR", "node1");
  EXPECT_EQ(find_launch()->address, "node1");
}

TEST(Launcher, WrongVariablesAreErrors) {
  const std::list<std::list<std::pair<std::string, std::string>>> all = {
      {{"RANK", "0"}},
      {{"WORLD_SIZE", "2"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "two"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "65536"}}};
  for (const auto& each : all) {
    const Variables variables(each);
    EXPECT_THROW(find_launch(), UsageError);
  }
}

TEST(Launcher, FindsTheFirstHostOfASlurmList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[03-05,8],gpu1"), "node03");
  EXPECT_EQ(first_host("a,node[1-2]"), "a");
  EXPECT_EQ(first_host("rack[2,4]-x,b"), "rack2-x");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace remcaps
