// What a launcher of parallel programs tells a process: torchrun, srun, mpirun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace remcaps {

/// The place of this process among the processes that were started together.
struct Launch {
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0;             ///< among the processes of this machine
  std::string address = "127.0.0.1";  ///< of rank 0
  int64_t port = 29500;
  /// Set if torchrun's own process answers at this address: the prefix of the keys of this attempt.
  /// Unset if rank 0 answers.
  std::optional<std::string> agent = std::nullopt;
};

/// Reads the launcher's variables:
///   torchrun  RANK, WORLD_SIZE, LOCAL_RANK
///   srun      SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID
///   mpirun    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK
/// and, for all of them, MASTER_ADDR and MASTER_PORT if they are set. Nothing if no launcher
/// started this process. UsageError if a variable is missing or wrong.
std::optional<Launch> find_launch();

/// The first machine of a Slurm list: "node03" of "node[03-05,8],gpu1".
std::string first_host(const std::string& list);

}  // namespace remcaps
