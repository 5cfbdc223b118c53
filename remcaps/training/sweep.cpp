#include "remcaps/training/sweep.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/message.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : whole_number(text);
}

Shard shard_of_job_array() {
  const auto id = variable("SLURM_ARRAY_TASK_ID");
  if (!id) return {};
  const int64_t first = variable("SLURM_ARRAY_TASK_MIN").value_or(*id);
  const int64_t last = variable("SLURM_ARRAY_TASK_MAX").value_or(*id);
  const int64_t step = std::max<int64_t>(variable("SLURM_ARRAY_TASK_STEP").value_or(1), 1);
  const int64_t count = variable("SLURM_ARRAY_TASK_COUNT").value_or(1);
  // A list with holes (--array=1,5,6) does not tell a task its place.
  if ((last - first) / step + 1 != count || (*id - first) % step != 0 || *id < first || *id > last)
    throw UsageError(
        fmt::format("the Slurm job array has {} tasks from {} to {}; expected a range without "
                    "holes, or --shard I/N",
                    count, first, last));
  return {(*id - first) / step + 1, count};
}

void write_failure(const PlannedRun& run, const std::exception& error) {
  try {
    write_atomically(failure_file(run.folder.parent_path(), run.seed),
                     printable(error_text(error)) + "\n");
  } catch (const Error&) {  // a full disk, perhaps the failure itself
  }
}

}  // namespace

Turn take_turn(PlannedRun& run, const std::function<void(PlannedRun&)>& train) {
  const fs::path parent = run.folder.parent_path();
  const auto claim = claim_run(parent, run.seed);
  find_again(run);
  if (run.state == PlannedRun::State::kFinished) return Turn::kFinishedBefore;
  if (!claim || run.state == PlannedRun::State::kTraining) {
    run.state = PlannedRun::State::kTraining;
    return Turn::kInTraining;
  }
  fs::remove(failure_file(parent, run.seed));
  try {
    train(run);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    write_failure(run, error);
    throw;
  }
  run.state = PlannedRun::State::kFinished;
  return Turn::kTrained;
}

Shard parse_shard(const std::string& text) {
  if (text.empty()) return shard_of_job_array();
  const size_t slash = text.find('/');
  const auto index = whole_number(std::string_view(text).substr(0, slash));
  const auto count = slash == std::string::npos
                         ? std::nullopt
                         : whole_number(std::string_view(text).substr(slash + 1));
  if (!index || !count || *index < 1 || *index > *count)
    throw UsageError(fmt::format("--shard {}: expected I/N with I from 1 to N, as in 1/4", text));
  return {*index, *count};
}

}  // namespace remcaps
