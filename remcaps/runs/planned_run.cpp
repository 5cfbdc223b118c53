#include "remcaps/runs/planned_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/runs/run_folder.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

bool ended_by_its_time_limit(const fs::path& summary) {
  const auto parsed = nlohmann::json::parse(read_file(summary), nullptr, false);
  check(parsed.is_object(), "{}: not a run's summary", summary.string());
  const auto stopped = parsed.find("stopped");
  return stopped != parsed.end() && *stopped == "minutes";
}

}  // namespace

PlannedRun::State state_of_run(const fs::path& folder) {
  const bool resumable = fs::exists(folder / "state.safetensors");
  if (FileLock::note_of_holder(folder / ".lock")) return PlannedRun::State::kTraining;
  if (fs::exists(folder / "summary.json") &&
      !(resumable && ended_by_its_time_limit(folder / "summary.json")))
    return PlannedRun::State::kFinished;
  return resumable ? PlannedRun::State::kInterrupted : PlannedRun::State::kMissing;
}

PlannedRun find_run(const fs::path& parent, const std::string& recipe, int64_t seed) {
  PlannedRun run{recipe, seed, RunFolder::name(parent, seed, 1), PlannedRun::State::kMissing};
  for (int64_t k = 1; fs::exists(RunFolder::name(parent, seed, k)); ++k) {
    const fs::path folder = RunFolder::name(parent, seed, k);
    const PlannedRun::State state = state_of_run(folder);
    if (state <= run.state) continue;
    run.folder = folder;
    run.state = state;
  }
  return run;
}

std::optional<FileLock> claim_run(const fs::path& parent, int64_t seed) {
  make_folder(parent);
  return FileLock::take(claim_file(parent, seed));
}

fs::path claim_file(const fs::path& parent, int64_t seed) {
  return parent / fmt::format(".seed-{}.lock", seed);
}

fs::path failure_file(const fs::path& parent, int64_t seed) {
  return parent / fmt::format("seed-{}.error", seed);
}

}  // namespace remcaps
