#include "remcaps/runs/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/text.h"
#include "remcaps/runs/metrics.h"
#include "remcaps/runs/run_folder.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kPlanEnd = ".plan.json";
using RecipeAndSeed = std::pair<std::string, int64_t>;

// A number of an object; nothing if it is missing or null, as in a file that is half written.
std::optional<double> number(const json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

json parse_quietly(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  return json::parse(read_file(file), nullptr, false);
}

std::optional<double> last_number(const json& metrics, const char* column) {
  const auto found = metrics.find(column);
  if (found == metrics.end()) return std::nullopt;
  for (auto value = found->rbegin(); value != found->rend(); ++value)
    if (value->is_number()) return value->get<double>();
  return std::nullopt;
}

struct Limits {
  int64_t epochs = 0, patience = 0;
  double minutes = 0;
};

Limits limits_of(const RunFolder& run) {
  try {
    const Recipe recipe = read_run_recipe(run);
    return {recipe.train.epochs, recipe.train.patience, recipe.train.minutes};
  } catch (const Error&) {  // of another version
    return {};
  }
}

// The epoch with the lowest validation loss.
int64_t best_epoch(const json& metrics) {
  const auto& losses = metrics.at("validation_loss");
  const auto less = [](const json& a, const json& b) { return a.is_number() && a < b; };
  return std::min_element(losses.begin(), losses.end(), less) - losses.begin();
}

void add_metrics(RunStatus& status, const json& metrics) {
  if (!metrics.contains("epoch")) return;
  status.epochs = static_cast<double>(metrics.at("epoch").size());
  status.loss = last_number(metrics, "train_loss");
  status.validation_accuracy = last_number(metrics, "validation_accuracy");
  status.sparsity = last_number(metrics, "sparsity");
  status.entropy = last_number(metrics, "entropy");
}

void add_progress(RunStatus& status, const json& note, const json& metrics, const Limits& limits) {
  const double images = number(note, "images").value_or(0);
  if (images > 0)
    status.epochs =
        number(note, "epoch").value_or(0) + number(note, "images_done").value_or(0) / images;
  if (const auto loss = number(note, "loss")) status.loss = loss;
  const double seconds = number(note, "seconds").value_or(0);
  if (seconds <= 0 || status.epochs <= 0) return;
  const double an_epoch = seconds / status.epochs;
  const auto consider = [&](double left, bool at_least) {
    left = std::max(left, 0.0);
    if (status.seconds_left && *status.seconds_left <= left) return;
    status.seconds_left = left;
    status.at_least = at_least;
  };
  if (limits.epochs > 0)
    consider((static_cast<double>(limits.epochs) - status.epochs) * an_epoch, false);
  if (const double limit = number(note, "limit_seconds").value_or(0); limit > 0)
    consider(limit - seconds, false);
  if (limits.patience > 0 && metrics.contains("validation_loss") &&
      !metrics.at("validation_loss").empty())
    consider(
        (static_cast<double>(best_epoch(metrics) + 1 + limits.patience) - status.epochs) * an_epoch,
        true);
}

void add_summary(RunStatus& status, const json& summary) {
  status.epochs = number(summary, "epochs").value_or(status.epochs);
  status.test_accuracy = number(summary, "accuracy");
  if (const auto sparsity = number(summary, "sparsity")) status.sparsity = sparsity;
  if (const auto entropy = number(summary, "entropy")) status.entropy = entropy;
}

void add_run(RunStatus& status, const RunFolder& run, PlannedRun::State state) {
  const Limits limits = limits_of(run);
  status.most_epochs = limits.epochs;
  json metrics = json::object();
  try {
    metrics = read_metrics(run.metrics());
  } catch (const Error&) {  // a row is being written
  }
  add_metrics(status, metrics);
  if (state == PlannedRun::State::kFinished) {
    add_summary(status, parse_quietly(run.summary()));
  } else if (state == PlannedRun::State::kTraining) {
    const auto note = FileLock::note_of_holder(run.lock());
    add_progress(status, json::parse(note.value_or(""), nullptr, false), metrics, limits);
  }
}

RunStatus::State shown_state(const PlannedRun& run) {
  using State = RunStatus::State;
  if (run.state == PlannedRun::State::kFinished) return State::kFinished;
  if (run.state == PlannedRun::State::kTraining) return State::kRunning;
  const fs::path parent = run.folder.parent_path();
  if (FileLock::note_of_holder(claim_file(parent, run.seed))) return State::kStarting;
  if (fs::exists(failure_file(parent, run.seed))) return State::kFailed;
  return fs::exists(run.folder) ? State::kStopped : State::kWaiting;
}

// The seed of a run's folder, seed-42 or seed-42-2.
std::optional<int64_t> seed_of(const std::string& name) {
  constexpr std::string_view kBegin = "seed-";
  if (!name.starts_with(kBegin)) return std::nullopt;
  const auto numbers = parse_ranges(name.substr(kBegin.size(), name.find_first_of("-.", 5) - 5));
  if (!numbers || numbers->size() != 1) return std::nullopt;
  return numbers->front().first;
}

RunStatus status_of(const PlannedRun& run, RunStatus::State state) {
  RunStatus status;
  status.recipe = run.recipe;
  status.seed = run.seed;
  status.folder = run.folder;
  status.state = state;
  std::error_code error;
  if (fs::is_regular_file(run.folder / "recipe.yaml", error))
    add_run(status, RunFolder::open(run.folder), run.state);
  if (status.state != RunStatus::State::kFailed) return status;
  const fs::path failure = failure_file(run.folder.parent_path(), run.seed);
  try {
    status.reason = first_line(read_file(failure));
  } catch (const Error&) {
    if (fs::exists(failure)) throw;
    status.state = RunStatus::State::kStarting;  // a worker has just begun it again
  }
  return status;
}

// What a folder has of a recipe and a seed.
struct Found {
  std::vector<fs::path> folders;
  std::set<std::string> passed_over;  ///< names of folders that a plan does not count
};

void add_plan(std::map<RecipeAndSeed, Found>& found, const fs::path& file) {
  const json plan = parse_quietly(file);
  const auto damaged = [&] { fail("{}: not a plan of runs", file.string()); };
  if (!plan.is_object() || !plan.contains("runs") || !plan["runs"].is_array()) damaged();
  for (const json& run : plan["runs"]) {
    if (!run.is_object() || !run.contains("recipe") || !run["recipe"].is_string() ||
        !number(run, "seed"))
      damaged();
    Found& planned = found[{run["recipe"].get<std::string>(), run["seed"].get<int64_t>()}];
    const json passed_over = run.value("passed_over", json::array());
    if (!passed_over.is_array()) damaged();
    for (const json& name : passed_over) {
      if (!name.is_string()) damaged();
      planned.passed_over.insert(name.get<std::string>());
    }
  }
}

// The run of a seed that counts, and the others beside it.
void add_runs_of_seed(std::vector<RunStatus>& result, const fs::path& parent,
                      const std::string& recipe, int64_t seed, Found& runs) {
  const auto why_not = [&passed = runs.passed_over](const fs::path& other, PlannedRun::State) {
    return std::string(passed.contains(other.filename().string()) ? "passed over" : "");
  };
  const PlannedRun run = find_run(parent, recipe, seed, why_not);
  const RunStatus first = status_of(run, shown_state(run));
  result.push_back(first);
  // Other runs of the same seed, in seed-42-2 and so on, if they have come as far as a checkpoint.
  std::sort(runs.folders.begin(), runs.folders.end());
  for (const fs::path& other : runs.folders) {
    const PlannedRun beside{
        .recipe = recipe, .seed = seed, .folder = other, .state = state_of_run(other)};
    if (other.filename() == first.folder.filename() || beside.state == PlannedRun::State::kMissing)
      continue;
    result.push_back(status_of(
        beside, beside.state == PlannedRun::State::kFinished   ? RunStatus::State::kFinished
                : beside.state == PlannedRun::State::kTraining ? RunStatus::State::kRunning
                                                               : RunStatus::State::kStopped));
  }
}

}  // namespace

std::string to_text(const TrainingNote& note) {
  return json_text({{"epoch", note.epoch},
                    {"images_done", note.images_done},
                    {"images", note.images},
                    {"loss", note.loss},
                    {"accuracy", note.accuracy},
                    {"seconds", note.seconds},
                    {"limit_seconds", note.limit_seconds}});
}

std::string state_name(RunStatus::State state) {
  using State = RunStatus::State;
  switch (state) {
    case State::kWaiting:
      return "waiting";
    case State::kStarting:
      return "starting";
    case State::kRunning:
      return "running";
    case State::kStopped:
      return "stopped";
    case State::kFinished:
      return "finished";
    case State::kFailed:
      return "failed";
  }
  return "";
}

RunStatus status_of(PlannedRun run) {
  find_again(run);
  return status_of(run, shown_state(run));
}

std::vector<RunStatus> find_statuses(const fs::path& folder) {
  check(fs::is_directory(folder), "{}: no such folder", folder.string());
  // The recipe is the path from the folder to the run's parent.
  std::map<RecipeAndSeed, Found> found;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (auto entry = fs::recursive_directory_iterator(folder, skip);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename().string();
    if (entry.depth() == 0 && name.ends_with(kPlanEnd)) add_plan(found, entry->path());
    const auto seed = seed_of(name);
    const bool is_run = seed && fs::exists(entry->path() / "recipe.yaml");
    const bool is_failure = seed && name.ends_with(".error");
    if (!is_run && !is_failure) continue;
    Found& runs = found[{entry->path().parent_path().lexically_relative(folder).string(), *seed}];
    if (!is_run) continue;
    runs.folders.push_back(entry->path());
    entry.disable_recursion_pending();
  }
  std::vector<RunStatus> result;
  for (auto& [key, runs] : found) {
    const std::string recipe = key.first == "." ? "" : key.first;
    const fs::path parent = (folder / key.first).lexically_normal();
    try {
      add_runs_of_seed(result, parent, recipe, key.second, runs);
    } catch (const Error& error) {  // a damaged file of one run must not hide the others
      RunStatus& failed = result.emplace_back();
      failed.state = RunStatus::State::kFailed;
      failed.recipe = recipe;
      failed.seed = key.second;
      failed.folder = RunFolder::name(parent, key.second, 1);
      failed.reason = error.what();
    }
  }
  return result;
}

json to_json(const RunStatus& status) {
  const auto value = [](const std::optional<double>& number) {
    return number ? json(*number) : json(nullptr);
  };
  return {{"state", state_name(status.state)},
          {"recipe", status.recipe},
          {"seed", status.seed},
          {"run", status.folder.string()},
          {"epochs", status.epochs},
          {"most_epochs", status.most_epochs},
          {"loss", value(status.loss)},
          {"validation_accuracy", value(status.validation_accuracy)},
          {"test_accuracy", value(status.test_accuracy)},
          {"sparsity", value(status.sparsity)},
          {"entropy", value(status.entropy)},
          {"seconds_left", value(status.seconds_left)},
          {"at_least", status.at_least},
          {"reason", status.reason}};
}

void write_plan(const fs::path& runs, const std::string& name,
                const std::vector<PlannedRun>& plan) {
  json list = json::array();
  for (const PlannedRun& run : plan) {
    list.push_back({{"recipe", run.recipe}, {"seed", run.seed}});
    for (const auto& other : run.passed_over)
      list.back()["passed_over"].push_back(other.folder.filename().string());
  }
  make_folder(runs);
  write_atomically(runs / (name + kPlanEnd), json_text({{"runs", list}}, 1) + "\n");
}

}  // namespace remcaps
