#include "remcaps/report/collect.h"

#include <fmt/ranges.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/runs/metrics.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json collected(const RunResult& run, const CollectOptions& options) {
  json summary = run.summary;
  summary.erase("run");  // a path on one machine
  if (summary.contains("options")) summary["options"].erase("dataset.folder");  // and another
  if (!options.machine.empty()) summary["machine"] = options.machine;
  if (!options.commit.empty()) summary["commit"] = options.commit;
  if (!options.data_note.empty()) summary["data_note"] = options.data_note;
  // How parse trees changed while it trained; a collected file has it already.
  if (const fs::path metrics = run.place / "metrics.csv"; fs::exists(metrics)) {
    const TreeCurve curve = tree_curve(read_metrics(metrics), metrics.string());
    if (!curve.epoch.empty()) summary["curve"] = to_json(curve);
  }
  return summary;
}

// One line per key: short, and a changed key is one changed line.
std::string one_line_a_key(const json& object) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : object.items())
    lines.push_back(fmt::format("  {}: {}", json_text(key), json_text(value)));
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

}  // namespace

std::vector<fs::path> collect_results(const RunResults& results, const CollectOptions& options) {
  std::vector<fs::path> files;
  for (const auto& [recipe, experiments] : results) {
    std::map<int64_t, int> collected_of;  // experiments by seed
    for (const auto& [experiment, runs] : experiments)
      for (const RunResult& run : runs) {
        const int number = ++collected_of[run.seed];
        const std::string name = number == 1 ? fmt::format("seed-{}.json", run.seed)
                                             : fmt::format("seed-{}-{}.json", run.seed, number);
        check(stays_below(recipe), "{}: its recipe is \"{}\"; expected a name such as {}",
              run.place.string(), recipe, "mnist/dr-capsnet");
        const fs::path file = options.out / recipe / name;
        const std::string text = one_line_a_key(collected(run, options));
        make_folder(file.parent_path());
        write_atomically(file, text);
        files.push_back(file);
      }
  }
  return files;
}

}  // namespace remcaps
