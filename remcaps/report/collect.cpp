#include "remcaps/report/collect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/training/launch.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

using OptionMap = std::map<std::string, std::string>;

// What decides neither the weights nor the numbers a run ends with. The seed has a key of its own.
bool leaves_the_result_alone(const std::string& key) {
  return key == "about" || key == "train.seed" || key == "cuda_graph" ||
         key.starts_with("metrics.") || key.starts_with("train.checkpoint_");
}

// 1e-3 and 0.001 are the same value.
bool same_value(const std::string& a, const std::string& b) {
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  const bool numbers = !a.empty() && !b.empty() && *end_a == '\0' && *end_b == '\0';
  return numbers ? x == y : a == b;
}

// A network's options that its recipe leaves at their defaults are not compared: the recipe does
// not say them. A recipe of the user's own is compared with nothing.
OptionMap changed_options(const std::string& recipe, const OptionMap& options) {
  OptionMap changed;
  const std::vector<std::string> known = recipe_names();
  if (std::find(known.begin(), known.end(), recipe) == known.end()) return changed;
  for (const auto& [key, published] : yaml_paths(load_recipe(recipe).to_yaml())) {
    const auto own = options.find(key);
    if (own != options.end() && !leaves_the_result_alone(key) &&
        !same_value(own->second, published))
      changed[key] = own->second;
  }
  return changed;
}

json collected(const RunResult& run, const CollectOptions& options) {
  json summary = run.summary;
  summary.erase("run");  // a path on one machine
  if (!summary.contains("options"))
    summary["options"] = yaml_paths(read_run_recipe(RunFolder::open(run.place)).to_yaml());
  summary["options"].erase("dataset.folder");
  summary["changed"] = changed_options(run.recipe, summary.at("options").get<OptionMap>());
  if (!options.machine.empty()) summary["machine"] = options.machine;
  if (!options.commit.empty()) summary["commit"] = options.commit;
  if (!options.data_note.empty()) summary["data_note"] = options.data_note;
  return summary;
}

// One line a key: short, and a change shows as the line it is.
std::string one_line_a_key(const json& object) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : object.items())
    lines.push_back(fmt::format("  {}: {}", json_text(key), json_text(value)));
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

}  // namespace

std::vector<fs::path> collect_results(const RunResults& results, const CollectOptions& options) {
  std::vector<fs::path> files;
  for (const auto& [recipe, runs] : results)
    for (const RunResult& run : runs) {
      check(stays_below(recipe), "{}: its recipe is \"{}\"; expected a name such as {}",
            run.place.string(), recipe, "mnist/dr-capsnet");
      const fs::path file = options.out / recipe / fmt::format("seed-{}.json", run.seed);
      const std::string text = one_line_a_key(collected(run, options));
      make_folder(file.parent_path());
      write_atomically(file, text);
      files.push_back(file);
    }
  return files;
}

}  // namespace remcaps
