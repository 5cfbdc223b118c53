#include "remcaps/report/run_results.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/statistics.h"
#include "remcaps/training/launch.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// summary.json of a run, or seed-42.json of collected results.
bool is_summary(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return entry.is_regular_file() &&
         (name == "summary.json" || (name.starts_with("seed-") && name.ends_with(".json")));
}

// Checks the kinds of the values that tables read from a summary, or from its part for a split.
void check_kinds(const json& part, const fs::path& file) {
  const auto numbers = [](const json& value) {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), [](const json& x) { return x.is_number(); });
  };
  const auto texts = [](const json& value) {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const json& x) { return x.is_string(); });
  };
  const auto expect = [&](const char* key, bool (*holds)(const json&), const char* kind) {
    const auto found = part.find(key);
    check(found == part.end() || holds(*found), "{}: its {} is not {}", file.string(), key, kind);
  };
  for (const char* key :
       {"epochs", "accuracy", "accuracy_quantized", "parameters_nonzero", "seconds", "median_keys"})
    expect(
        key, [](const json& value) { return value.is_number(); }, "a number");
  for (const char* key : {"stopped", "machine", "data_note"})
    expect(
        key, [](const json& value) { return value.is_string(); }, "a text");
  for (const char* key : {"entropy_per_class", "keys_per_class"})
    expect(key, numbers, "a list of numbers");
  for (const char* key : {"options", "changed"}) expect(key, texts, "texts by name");
  expect(
      "effective_parts",
      [](const json& value) {
        return value.is_object() && value.contains("half") && value.at("half").is_number();
      },
      "an object with a number \"half\"");
}

// Summaries of an older program have some options under their old names.
void use_current_keys(json& summary) {
  for (const char* part : {"options", "changed"}) {
    if (!summary.contains(part)) continue;
    json renamed = json::object();
    for (const auto& [key, value] : summary.at(part).items()) renamed[current_key(key)] = value;
    summary[part] = std::move(renamed);
  }
}

// An option of a summary is YAML: no text is "".
std::string option_text(const std::string& yaml, const fs::path& place) {
  try {
    return parse_yaml(yaml).as<std::string>("");
  } catch (const YAML::Exception&) {
    fail("{}: its option {} is not YAML", place.string(), printable(yaml));
  }
}

RunResult read_summary(const fs::path& file) {
  RunResult result;
  result.place = file.filename() == "summary.json" ? file.parent_path() : file;
  try {
    result.summary = json::parse(read_file(file), [&](int depth, json::parse_event_t, json& value) {
      // Copying and writing a value recurse as deep as it is.
      check(depth <= 32, "{}: more than 32 levels within each other", file.string());
      if (value.is_string()) value = printable(value.get_ref<const std::string&>());
      return true;
    });
    result.recipe = result.summary.at("recipe");
    result.seed = whole_number(result.summary.at("seed"));
  } catch (const json::parse_error& error) {
    fail("{}: not JSON (byte {})", file.string(), error.byte);
  } catch (const json::exception&) {
    fail("{}: not a run's summary (no recipe, no seed)", file.string());
  }
  check_kinds(result.summary, file);
  use_current_keys(result.summary);
  const auto splits = result.summary.find("splits");
  if (splits != result.summary.end() && splits->is_object())
    for (const auto& [name, part] : splits->items()) check_kinds(part, file);
  return result;
}

// A run's own summary does not say what was changed; an older one does not have the options either.
void note_changes(RunResult& run, RecipeChanges& changes) {
  json& summary = run.summary;
  try {
    if (!summary.contains("options") && fs::exists(run.place / "recipe.yaml"))
      summary["options"] = yaml_paths(read_run_recipe(RunFolder::open(run.place)).to_yaml());
    if (!summary.contains("changed") && summary.contains("options"))
      summary["changed"] = changes.of(run.recipe, summary.at("options").get<OptionMap>());
  } catch (const Error&) {
    // The recipe can no longer be read: it was written by an older program.
  }
}

int64_t epochs_of(const RunResult& run) {
  return run.summary.value("epochs", int64_t{0});
}

// Adds a run to its group. If the group already has a run of this seed, the shorter of the two goes
// to `displaced`.
void add_result(FoundResults& found, std::vector<RunResult>& displaced, RunResult result) {
  const OptionMap changed = result.changed();
  for (const char* key : {"dataset.name", "dataset.protocol"})
    if (changed.contains(key)) {
      found.left_out.push_back(
          {result.recipe, fmt::format("{} is left out: not on the data of {} ({}={})",
                                      result.place.string(), result.recipe, key, changed.at(key))});
      return;
    }
  std::vector<RunResult>& runs = found.results[result.recipe][result.experiment()];
  const auto same = std::find_if(runs.begin(), runs.end(),
                                 [&](const RunResult& run) { return run.seed == result.seed; });
  if (same == runs.end()) {
    runs.push_back(std::move(result));
    return;
  }
  if (epochs_of(result) > epochs_of(*same)) std::swap(result, *same);
  displaced.push_back(std::move(result));
}

LeftOutRun note_displaced(const RunResult& run, const std::vector<RunResult>& runs) {
  const auto counts = std::find_if(runs.begin(), runs.end(),
                                   [&](const RunResult& other) { return other.seed == run.seed; });
  return {run.recipe,
          fmt::format("{} is left out: seed {} of {} has {} run, {}", run.place.string(), run.seed,
                      run.recipe, epochs_of(*counts) > epochs_of(run) ? "a longer" : "another",
                      counts->place.string())};
}

double test_accuracy(const RunResult& run) {
  return run.summary.value("accuracy_quantized", run.summary.value("accuracy", 0.0));
}

bool less_accurate(const RunResult& a, const RunResult& b) {
  return test_accuracy(a) < test_accuracy(b);
}

// The number of one run, or nothing.
std::optional<double> number(const RunResult& run, const PaperCell& cell) {
  const json& split = run.split(cell.split);
  const auto value = [](const json& from, const char* key, double scale) -> std::optional<double> {
    if (!from.is_object() || !from.contains(key) || !from.at(key).is_number()) return std::nullopt;
    return from.at(key).get<double>() * scale;
  };
  switch (cell.metric) {
    case Metric::kAccuracy:
      return value(split, "accuracy", 100);
    case Metric::kAccuracyQuantized:
      return value(split, "accuracy_quantized", 100);
    case Metric::kEntropy:
      return value(split, "entropy", 1);
    case Metric::kSparsity:
      return value(run.summary, "sparsity", 100);
    case Metric::kParameters:
      return value(run.summary, "parameters_nonzero", 1);
    case Metric::kKeys: {
      if (!split.is_object() || !split.contains("keys_per_class")) return std::nullopt;
      const auto keys = split.at("keys_per_class").get<std::vector<double>>();
      const auto at = static_cast<size_t>(cell.class_index);
      return at < keys.size() ? std::optional<double>(keys[at]) : std::nullopt;
    }
  }
  return std::nullopt;
}

// numpy.std over classes of the seeds' mean entropies: the published ±.
std::optional<double> over_classes(const std::vector<const RunResult*>& runs,
                                   const std::string& split) {
  std::vector<double> sums;
  for (const RunResult* run : runs) {
    const json& part = run->split(split);
    if (!part.contains("entropy_per_class")) return std::nullopt;
    const auto entropies = part.at("entropy_per_class").get<std::vector<double>>();
    sums.resize(std::max(sums.size(), entropies.size()), 0.0);
    for (size_t k = 0; k < entropies.size(); ++k)
      sums[k] += entropies[k] / static_cast<double>(runs.size());
  }
  return sums.empty() ? std::nullopt : std::optional<double>(standard_deviation(sums));
}

}  // namespace

std::string RunResult::note() const {
  std::vector<std::string> parts = {summary.value("data_note", "")};
  const auto options = summary.find("options");
  fs::path start;
  if (options != summary.end()) start = option_text(options->value("train.start_from", ""), place);
  if (start.filename().string().starts_with("seed-")) start = start.parent_path();
  // Where it lay on one machine is of no use to others: the last two names are the recipe's.
  if (!start.empty())
    parts.push_back("starts from " +
                    (start.parent_path().filename() / start.filename()).generic_string());
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "; "));
}

const json& RunResult::split(const std::string& name) const {
  static const json kNothing;
  if (name == "test") return summary;
  const auto splits = summary.find("splits");
  if (splits == summary.end()) return kNothing;
  const auto found = splits->find(name);
  return found == splits->end() ? kNothing : *found;
}

OptionMap RunResult::changed() const {
  return summary.value("changed", OptionMap());
}

std::string RunResult::experiment() const {
  std::vector<std::string> parts;
  for (const auto& [key, value] : other_experiment(changed()))
    parts.push_back(fmt::format("{}={}", key, value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> FoundResults::notes(const std::vector<std::string>& recipes) const {
  std::vector<std::string> lines;
  for (const LeftOutRun& run : left_out)
    if (std::find(recipes.begin(), recipes.end(), run.recipe) != recipes.end())
      lines.push_back(run.note);
  return lines;
}

std::vector<std::string> FoundResults::notes() const {
  std::vector<std::string> lines;
  for (const LeftOutRun& run : left_out) lines.push_back(run.note);
  return lines;
}

FoundResults find_results(const std::vector<fs::path>& paths) {
  FoundResults found;
  RecipeChanges changes;
  std::vector<RunResult> displaced;
  std::set<fs::path> seen;
  for (const fs::path& path : paths) {
    std::vector<fs::path> files;
    if (fs::is_regular_file(path)) {
      files.push_back(path);
    } else {
      check(fs::is_directory(path), "{}: no such summary or folder of runs", path.string());
      for (const auto& entry : fs::recursive_directory_iterator(path))
        if (is_summary(entry)) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
    }
    for (const fs::path& file : files) {
      if (!seen.insert(fs::canonical(file)).second) continue;
      RunResult result = read_summary(file);
      note_changes(result, changes);
      add_result(found, displaced, std::move(result));
    }
  }
  for (const RunResult& run : displaced)
    found.left_out.push_back(
        note_displaced(run, found.results.at(run.recipe).at(run.experiment())));
  for (auto& [recipe, experiments] : found.results)
    for (auto& [changes, runs] : experiments)
      std::sort(runs.begin(), runs.end(),
                [](const RunResult& a, const RunResult& b) { return a.seed < b.seed; });
  return found;
}

RunResult read_result(const fs::path& place) {
  return read_summary(fs::is_directory(place) ? place / "summary.json" : place);
}

const RunResult& best_run(const std::vector<RunResult>& runs) {
  return *std::max_element(runs.begin(), runs.end(), less_accurate);
}

std::optional<Aggregate> aggregate(const RunResults& results, const PaperCell& cell,
                                   const std::string& experiment) {
  const auto recipe = results.find(cell.recipe);
  if (recipe == results.end()) return std::nullopt;
  const auto found = recipe->second.find(experiment);
  if (found == recipe->second.end()) return std::nullopt;
  std::vector<double> values;
  std::vector<const RunResult*> used;
  Aggregate result;
  for (const RunResult& run : found->second) {
    const auto value = number(run, cell);
    if (!value) continue;
    values.push_back(*value);
    used.push_back(&run);
    result.seeds.push_back(run.seed);
  }
  if (values.empty()) return std::nullopt;
  switch (cell.metric) {
    case Metric::kAccuracy:
    case Metric::kAccuracyQuantized:
      result.value = mean(values);
      result.over_seeds = standard_deviation(values);
      break;
    case Metric::kEntropy:
      result.value = mean(values);
      result.over_seeds = standard_deviation(values);
      result.over_classes = over_classes(used, cell.split);
      break;
    case Metric::kSparsity:
    case Metric::kKeys:
      result.value = median(values);
      break;
    case Metric::kParameters: {
      const auto best = std::max_element(
          used.begin(), used.end(),
          [](const RunResult* a, const RunResult* b) { return less_accurate(*a, *b); });
      result.value = values[static_cast<size_t>(best - used.begin())];
      break;
    }
  }
  return result;
}

}  // namespace remcaps
