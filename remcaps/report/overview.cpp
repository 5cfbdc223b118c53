#include "remcaps/report/overview.h"

#include <fmt/ranges.h>

#include <set>

#include "remcaps/base/error.h"
#include "remcaps/report/figure.h"
#include "remcaps/report/table_text.h"

namespace remcaps {

namespace {

// The paper's number for a recipe, from the first table that has it.
std::string paper_text(const std::string& recipe, Metric metric) {
  for (const PaperTable& table : paper_tables())
    for (const PaperRow& row : table.rows)
      for (const auto& cell : row.cells)
        if (cell && cell->paper && cell->recipe == recipe && cell->metric == metric &&
            cell->split == "test")
          return fmt::format("{:.2f}", cell->paper->value);
  return "";
}

// "converged at 344; cut at 300, 187": the epochs of runs that ended by their recipe's own rule,
// and the epochs of runs that a limit of epochs or minutes ended.
std::string ending(const std::vector<RunResult>& runs) {
  std::vector<int64_t> converged, cut;
  for (const RunResult& run : runs) {
    const std::string stopped = run.summary.value("stopped", "");
    (stopped == "minutes" || stopped == "epochs" ? cut : converged)
        .push_back(run.summary.value("epochs", int64_t{0}));
  }
  std::vector<std::string> parts;
  if (!converged.empty())
    parts.push_back(fmt::format("converged at {}", fmt::join(converged, ", ")));
  if (!cut.empty()) parts.push_back(fmt::format("cut at {}", fmt::join(cut, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// Whether a recipe prunes with REM and its parse trees have no less entropy than those of the same
// recipe without REM.
bool not_lower_with_rem(const RunResults& results, const std::string& recipe,
                        const std::string& experiment) {
  constexpr std::string_view kRem = "-rem";
  if (!recipe.ends_with(kRem)) return false;
  const auto entropy = [&](const std::string& name) {
    return aggregate(results, {name, Metric::kEntropy, "test", -1, std::nullopt}, experiment);
  };
  const auto with = entropy(recipe),
             without = entropy(recipe.substr(0, recipe.size() - kRem.size()));
  return with && without && with->value >= without->value;
}

std::string note_of(const RunResults& results, const std::string& recipe,
                    const std::string& experiment, const std::vector<RunResult>& runs) {
  std::set<std::string> notes;
  for (const RunResult& run : runs) notes.insert(run.note());
  notes.erase("");
  std::vector<std::string> parts(notes.begin(), notes.end());
  if (not_lower_with_rem(results, recipe, experiment))
    parts.insert(parts.begin(), "entropy not lower than without REM");
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string render_overview(const RunResults& results, const std::string& format,
                            std::optional<size_t> columns) {
  FigureTable table{{"runs of", "seeds", "accuracy (%)", "paper", "entropy (bits)", "paper",
                     "sparsity (%)", "paper", "epochs", "note"},
                    {}};
  std::set<std::string> seen;
  for (const PaperTable& each : paper_tables())
    for (const std::string& recipe : each.recipes()) {
      const auto found = results.find(recipe);
      if (found == results.end() || !seen.insert(recipe).second) continue;
      for (const auto& [experiment, runs] : found->second) {
        std::vector<std::string> row = {
            experiment.empty() ? recipe : fmt::format("{}, {}", recipe, experiment),
            std::to_string(runs.size())};
        for (const Metric metric :
             {Metric::kAccuracyQuantized, Metric::kEntropy, Metric::kSparsity}) {
          const auto ours =
              aggregate(results, {recipe, metric, "test", -1, std::nullopt}, experiment);
          std::string text = ours ? fmt::format("{:.2f}", ours->value) : "";
          if (ours && ours->over_seeds && ours->seeds.size() > 1)
            text += fmt::format(" ± {:.2f}", *ours->over_seeds);
          row.push_back(text);
          row.push_back(experiment.empty() ? paper_text(recipe, metric) : "");
        }
        row.push_back(ending(runs));
        row.push_back(note_of(results, recipe, experiment, runs));
        table.rows.push_back(std::move(row));
      }
    }
  if (format == "csv") return table.csv();
  std::vector<std::vector<std::string>> rows = {table.columns};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  if (format == "text") return fitted(rows, 1, 1, columns);
  if (format != "markdown")
    throw UsageError(
        fmt::format("table overview: no format {}; it has text, markdown and csv", format));
  return markdown(rows, 1);
}

}  // namespace remcaps
