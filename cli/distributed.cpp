#include "cli/distributed.h"

#include "cli/options.h"
#include "remcaps/base/message.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"

namespace remcaps::cli {

void DistributedOptions::add_to(CLI::App& command) {
  command
      .add_option(
          "--distributed", mode,
          "auto: the processes that torchrun, srun or mpirun started work together; off: each is "
          "alone")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "on", "off"}));
  command
      .add_option("--timeout", timeout,
                  "Seconds until a process that does not come or answer is given up")
      ->capture_default_str()
      ->check(between(1, 86400));
}

void DistributedOptions::run(const std::string& device,
                             const std::function<void(torch::Device, ProcessGroup*)>& work) const {
  const auto launch = mode == "off" ? std::nullopt : find_launch();
  if (mode == "on" && !launch)
    throw UsageError(
        "--distributed on: no launcher started this process; expected the variables "
        "of torchrun, srun or mpirun");
  // A process alone needs no group, unless it is asked for.
  if (!launch || (launch->size == 1 && mode != "on")) return work(parse_device(device), nullptr);
  mute_messages(launch->rank > 0);
  try {
    const torch::Device own =
        parse_device(device == "cuda" ? fmt::format("cuda:{}", launch->local_rank) : device);
    ProcessGroup group(*launch, own, std::chrono::seconds(timeout));
    work(own, &group);
  } catch (const Interrupted&) {
    throw;  // one process says where the run is saved
  } catch (const UsageError&) {
    throw;  // the same in all of them
  } catch (const std::exception& error) {
    mute_messages(false);
    fail("rank {}: {}", launch->rank, error_text(error));
  }
}

}  // namespace remcaps::cli
