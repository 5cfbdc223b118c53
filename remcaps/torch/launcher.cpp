#include "remcaps/torch/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

const char* const kIgnore = "--distributed off ignores the launcher";

std::string variable_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_set(const char* name) {
  return !variable_text(name).empty();
}

int64_t variable_number(const char* name, int64_t least, int64_t most) {
  const std::string text = variable_text(name);
  if (text.empty())
    throw UsageError(fmt::format("the launcher's variable {} is not set; {}", name, kIgnore));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw UsageError(fmt::format("the launcher's variable {} is {}; expected {} to {}; {}", name,
                                 text, least, most, kIgnore));
  return value;
}

// Two jobs of a machine should not meet at one port. Below the ports that systems give to clients.
int64_t port_of_job(const std::string& job) {
  return 20000 + static_cast<int64_t>(std::hash<std::string>()(job) % 12000);
}

Launch place(const char* rank, const char* size, const char* local_rank) {
  constexpr int64_t kMost = 100'000;
  Launch launch;
  launch.size = variable_number(size, 1, kMost);
  launch.rank = variable_number(rank, 0, launch.size - 1);
  if (is_set(local_rank)) launch.local_rank = variable_number(local_rank, 0, kMost);
  return launch;
}

Launch torchrun_launch() {
  Launch launch = place("RANK", "WORLD_SIZE", "LOCAL_RANK");
  if (variable_text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    launch.agent = "/worker/attempt_" + variable_text("TORCHELASTIC_RESTART_COUNT");
  return launch;
}

Launch slurm_launch() {
  Launch launch = place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
  const std::string host = first_host(variable_text("SLURM_STEP_NODELIST"));
  if (!host.empty()) launch.address = host;
  launch.port = port_of_job(variable_text("SLURM_JOB_ID") + "." + variable_text("SLURM_STEP_ID"));
  return launch;
}

Launch open_mpi_launch() {
  Launch launch =
      place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  if (!is_set("MASTER_ADDR") &&
      variable_text("OMPI_COMM_WORLD_LOCAL_SIZE") != variable_text("OMPI_COMM_WORLD_SIZE"))
    throw UsageError(
        "mpirun started processes on several machines; expected MASTER_ADDR, the machine of rank "
        "0 (mpirun -x MASTER_ADDR=HOST)");
  if (is_set("PMIX_NAMESPACE")) launch.port = port_of_job(variable_text("PMIX_NAMESPACE"));
  return launch;
}

}  // namespace

std::optional<Launch> find_launch() {
  Launch launch;
  if (is_set("RANK") || is_set("WORLD_SIZE"))
    launch = torchrun_launch();
  else if (is_set("SLURM_STEP_NUM_TASKS"))  // not set in a batch script, outside of srun
    launch = slurm_launch();
  else if (is_set("OMPI_COMM_WORLD_SIZE"))
    launch = open_mpi_launch();
  else
    return std::nullopt;
  if (is_set("MASTER_ADDR")) launch.address = variable_text("MASTER_ADDR");
  if (is_set("MASTER_PORT")) launch.port = variable_number("MASTER_PORT", 1, 65535);
  return launch;
}

std::string first_host(const std::string& list) {
  const size_t open = list.find('['), comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t close = list.find(']', open);
  if (close == std::string::npos) return "";
  const size_t end = list.find_first_of("-,]", open);
  const size_t after = std::min(list.find(',', close), list.size());
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) +
         list.substr(close + 1, after - close - 1);
}

}  // namespace remcaps
