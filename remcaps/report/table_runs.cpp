#include "remcaps/report/table_runs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "remcaps/base/progress.h"
#include "remcaps/base/statistics.h"

namespace remcaps {

namespace {

// One text per run, joined. A text that several runs share stands there once; if not all runs share
// it, their seeds follow it.
template <typename Text>
std::string each_once(const std::vector<RunResult>& runs, const Text& text) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> said;
  for (const RunResult& run : runs) {
    const std::string words = text(run);
    if (words.empty()) continue;
    const auto same = [&](const auto& other) { return other.first == words; };
    auto found = std::find_if(said.begin(), said.end(), same);
    if (found == said.end()) found = said.insert(said.end(), {words, {}});
    found->second.push_back(run.seed);
  }
  std::vector<std::string> parts;
  for (const auto& [words, seeds] : said)
    parts.push_back(seeds.size() == runs.size()
                        ? words
                        : fmt::format("{} (seed {})", words, fmt::join(seeds, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string number_text(const std::optional<Aggregate>& number, const std::string& plus_minus) {
  if (!number) return "";
  std::string text = fmt::format("{:.2f}", number->value);
  if (number->seeds.size() > 1) text += plus_minus + fmt::format("{:.2f}", *number->over_seeds);
  return text;
}

// Nothing if the run ended as its recipe says: by patience, or at a given accuracy.
std::string ended_early(const RunResult& run) {
  const std::string stopped = run.summary.value("stopped", "");
  const int64_t epochs = run.summary.value("epochs", int64_t{0});
  if (stopped == "minutes") return fmt::format("stopped by time limit at epoch {}", epochs);
  if (stopped == "epochs")
    return fmt::format("ended after {} epoch{} as told", epochs, epochs == 1 ? "" : "s");
  return "";
}

std::string told_changes(const RunResult& run) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : run.changed())
    // ended_early() has named both limits.
    if (key != "train.minutes" && key != "train.epochs")
      parts.push_back(fmt::format("{}={}", key, value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string remarks(const std::vector<RunResult>& runs) {
  std::vector<std::string> parts = {
      each_once(runs, ended_early), each_once(runs, told_changes),
      each_once(runs, [](const RunResult& run) { return run.note(); })};
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string mean_time(const std::vector<RunResult>& runs) {
  double seconds = 0;
  for (const RunResult& run : runs) seconds += run.summary.value("seconds", 0.0);
  return seconds > 0 ? human_seconds(seconds / static_cast<double>(runs.size())) : "";
}

std::string median_keys(const std::vector<RunResult>& runs) {
  std::vector<double> keys;
  for (const RunResult& run : runs)
    if (run.summary.contains("median_keys")) keys.push_back(run.summary.at("median_keys"));
  return keys.empty() ? "" : fmt::format("{:g}", median(keys));
}

// The mean over the runs that have measured them.
std::string effective_parts(const std::vector<RunResult>& runs) {
  double sum = 0, count = 0;
  for (const RunResult& run : runs) {
    const auto parts = run.summary.find("effective_parts");
    if (parts == run.summary.end()) continue;
    sum += parts->value("half", 0.0);
    ++count;
  }
  return count > 0 ? fmt::format("{:.1f}", sum / count) : "";
}

// A column that says nothing of any run only takes room.
void drop_empty_columns(std::vector<std::vector<std::string>>& rows) {
  for (size_t column = rows.front().size(); column-- > 0;) {
    const bool empty = std::all_of(rows.begin() + 1, rows.end(),
                                   [&](const auto& row) { return row[column].empty(); });
    if (!empty) continue;
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

}  // namespace

std::string short_count(double value) {
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.0f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::vector<std::vector<std::string>> run_rows(const PaperTable& table, const RunResults& results,
                                               const std::string& plus_minus) {
  std::vector<std::vector<std::string>> rows = {
      {"runs of", "seeds", "epochs", "time", "on", "unquantized accuracy", "entropy over seeds",
       "keys", "effective parts", "parameters left (best seed)", "note"}};
  for (const std::string& recipe : table.recipes()) {
    const auto found = results.find(recipe);
    if (found == results.end()) continue;
    for (const auto& [experiment, runs] : found->second) {
      std::vector<std::string> seeds, epochs;
      for (const RunResult& run : runs) {
        seeds.push_back(std::to_string(run.seed));
        epochs.push_back(std::to_string(run.summary.value("epochs", 0)));
      }
      const auto number = [&, &changes = experiment](Metric metric) {
        return number_text(aggregate(results, {recipe, metric, "test", -1, std::nullopt}, changes),
                           plus_minus);
      };
      rows.push_back(
          {recipe, fmt::format("{}", fmt::join(seeds, ", ")),
           fmt::format("{}", fmt::join(epochs, ", ")), mean_time(runs),
           each_once(runs, [](const RunResult& run) { return run.summary.value("machine", ""); }),
           number(Metric::kAccuracy), number(Metric::kEntropy), median_keys(runs),
           effective_parts(runs),
           short_count(best_run(runs).summary.value("parameters_nonzero", 0.0)), remarks(runs)});
    }
  }
  if (rows.size() > 1) drop_empty_columns(rows);
  return rows;
}

}  // namespace remcaps
