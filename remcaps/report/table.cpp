#include "remcaps/report/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/report/figure.h"
#include "remcaps/report/table_runs.h"
#include "remcaps/report/table_text.h"

namespace remcaps {
using nlohmann::json;

namespace {

std::string format_value(Metric metric, double value) {
  if (metric == Metric::kParameters) return short_count(value);
  if (metric == Metric::kKeys) return fmt::format("{:g}", value);
  return fmt::format("{:.2f}", value);
}

std::string with_deviation(Metric metric, double value, const std::optional<double>& deviation,
                           const std::string& plus_minus) {
  const std::string text = format_value(metric, value);
  return deviation ? text + plus_minus + fmt::format("{:.2f}", *deviation) : text;
}

// The deviation the paper prints: over classes for entropies, over seeds for accuracies.
std::optional<double> shown_deviation(const Aggregate& ours) {
  if (ours.over_classes) return ours.over_classes;
  return ours.seeds.size() > 1 ? ours.over_seeds : std::nullopt;
}

struct Line {
  std::vector<std::string> cells;
  bool ends_block = false;  // a rule belongs below it
};

std::string our_text(const RunResults& results, const std::optional<PaperCell>& cell,
                     const std::string& experiment, const std::string& plus_minus) {
  if (!cell) return "-";
  const auto ours = aggregate(results, *cell, experiment);
  if (!ours) return "";
  return with_deviation(cell->metric, ours->value, shown_deviation(*ours), plus_minus);
}

std::string paper_text(const std::optional<PaperCell>& cell, const std::string& plus_minus) {
  if (!cell) return "-";
  if (!cell->paper) return "";
  return with_deviation(cell->metric, cell->paper->value, cell->paper->deviation, plus_minus);
}

std::vector<std::string> headings(const PaperTable& table) {
  std::vector<std::string> result = table.labels;
  result.emplace_back("");
  result.insert(result.end(), table.columns.begin(), table.columns.end());
  result.emplace_back("seeds");
  return result;
}

// The experiments with a recipe; none if it has not been run.
Experiments experiments_of(const std::string& recipe, const RunResults& results) {
  const auto found = results.find(recipe);
  return found == results.end() ? Experiments() : found->second;
}

// The experiments with any of a row's recipes, the recipes as they are first.
std::set<std::string> experiments_of(const PaperRow& row, const RunResults& results) {
  std::set<std::string> names;
  for (const auto& cell : row.cells)
    if (cell)
      for (const auto& [name, runs] : experiments_of(cell->recipe, results)) names.insert(name);
  return names;
}

// The number of seeds: "5", or "5/3" if the row's recipes have different numbers of them.
std::string seeds_of(const PaperRow& row, const RunResults& results,
                     const std::string& experiment) {
  std::vector<std::string> recipes;
  std::vector<size_t> counts;
  for (const auto& cell : row.cells) {
    if (!cell || std::find(recipes.begin(), recipes.end(), cell->recipe) != recipes.end()) continue;
    recipes.push_back(cell->recipe);
    const Experiments own = experiments_of(cell->recipe, results);
    const auto found = own.find(experiment);
    if (found != own.end()) counts.push_back(found->second.size());
  }
  if (counts.empty()) return "";
  const auto of_first = [&](size_t count) { return count == counts.front(); };
  if (std::all_of(counts.begin(), counts.end(), of_first)) counts.resize(1);
  return fmt::format("{}", fmt::join(counts, "/"));
}

bool has_paper_numbers(const PaperRow& row) {
  return std::any_of(row.cells.begin(), row.cells.end(),
                     [](const auto& cell) { return cell && cell->paper; });
}

std::vector<Line> lines(const PaperTable& table, const RunResults& results,
                        const std::string& plus_minus) {
  std::vector<Line> result;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const PaperRow& row = table.rows[r];
    const bool paper_has_it = has_paper_numbers(row);
    std::set<std::string> experiments = experiments_of(row, results);
    if (experiments.empty() && !paper_has_it) experiments.insert("");  // an empty line
    std::vector<std::string> labels = row.labels;                      // on the row's first line
    const auto start_line = [&](const std::string& who) {
      Line line{labels, false};
      line.cells.push_back(who);
      labels.assign(row.labels.size(), "");
      return line;
    };
    for (const std::string& experiment : experiments) {
      Line ours = start_line(experiment.empty() ? "ours" : "ours, " + experiment);
      for (const auto& cell : row.cells)
        ours.cells.push_back(our_text(results, cell, experiment, plus_minus));
      ours.cells.push_back(seeds_of(row, results, experiment));
      result.push_back(std::move(ours));
    }
    if (paper_has_it) {
      Line paper = start_line("paper");
      for (const auto& cell : row.cells) paper.cells.push_back(paper_text(cell, plus_minus));
      paper.cells.emplace_back("");
      result.push_back(std::move(paper));
    }
    const bool last = r + 1 == table.rows.size();
    result.back().ends_block =
        !last && row.labels.size() > 1 && table.rows[r + 1].labels[0] != row.labels[0];
  }
  return result;
}

// The notes below a table: how to read it, and which runs are missing.
std::vector<std::string> notes(const PaperTable& table, const RunResults& results) {
  std::vector<std::string> result;
  if (!table.note.empty()) result.push_back(table.note);
  std::vector<std::string> missing;
  for (const std::string& recipe : table.recipes())
    if (!results.contains(recipe)) missing.push_back(recipe);
  if (missing.size() < table.recipes().size())
    result.emplace_back(
        "The ± of an accuracy is over seeds. That of an entropy is over classes, as published; the "
        "table of runs has the one over seeds.");
  if (missing.empty()) return result;
  constexpr size_t kNamed = 8;
  const size_t more = missing.size() - std::min(missing.size(), kNamed);
  missing.resize(missing.size() - more);
  result.push_back(fmt::format("No run yet of: {}{} (remcaps reproduce {} trains them)",
                               fmt::join(missing, ", "),
                               more > 0 ? fmt::format(" and {} more", more) : "", table.name));
  return result;
}

std::string title_of(const PaperTable& table) {
  return table.paper.empty() ? table.title : fmt::format("{} ({})", table.title, table.paper);
}

std::string render_text(const PaperTable& table, const RunResults& results,
                        std::optional<size_t> columns) {
  std::vector<std::vector<std::string>> rows = {headings(table)};
  std::set<size_t> gaps;
  for (Line& line : lines(table, results, "±")) {
    if (line.ends_block) gaps.insert(rows.size());
    rows.push_back(std::move(line.cells));
  }
  const size_t labels = table.labels.size() + 1;
  std::string text = title_of(table) + "\n\n" + fitted(rows, labels, labels, columns, gaps) + "\n";
  const auto runs = run_rows(table, results, "±");
  if (runs.size() > 1) text += fitted(runs, runs.front().size(), /*labels=*/1, columns) + "\n";
  for (const std::string& note : notes(table, results)) text += note + "\n";
  return text;
}

std::string render_markdown(const PaperTable& table, const RunResults& results) {
  std::vector<std::vector<std::string>> rows = {headings(table)};
  for (Line& line : lines(table, results, " ± ")) rows.push_back(std::move(line.cells));
  std::string text =
      fmt::format("**{}**\n\n", title_of(table)) + markdown(rows, table.labels.size() + 1);
  const auto runs = run_rows(table, results, " ± ");
  if (runs.size() > 1) text += markdown(runs, runs.front().size());
  for (const std::string& note : notes(table, results)) text += "- " + note + "\n";
  return text;
}

std::string latex_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '%' || c == '_' || c == '&' || c == '#') result += '\\';
    result += c;
  }
  const std::string plain = "±", math = "$\\pm$";
  for (size_t at = result.find(plain); at != std::string::npos;
       at = result.find(plain, at + math.size()))
    result.replace(at, plain.size(), math);
  return result;
}

std::string render_latex(const PaperTable& table, const RunResults& results) {
  const std::vector<std::string> heads = headings(table);
  const auto print = [](std::vector<std::string> cells) {
    for (std::string& cell : cells) cell = latex_escaped(cell);
    return fmt::format("{} \\\\\n", fmt::join(cells, " & "));
  };
  std::string text = "\\begin{table}[h]\n\\centering\n\\begin{tabular}{" +
                     std::string(table.labels.size() + 1, 'l') +
                     std::string(table.columns.size() + 1, 'c') + "}\n\\toprule\n" + print(heads) +
                     "\\midrule\n";
  const std::vector<Line> all = lines(table, results, "±");
  for (const Line& line : all) {
    text += print(line.cells);
    if (line.ends_block) text += "\\midrule\n";
  }
  text += fmt::format("\\bottomrule\n\\end{{tabular}}\n\\caption{{{}}}\n\\end{{table}}\n",
                      latex_escaped(title_of(table)));
  for (const auto& cells : run_rows(table, results, "±"))
    text += fmt::format("% {}\n", fmt::join(cells, " | "));
  for (const std::string& note : notes(table, results)) text += "% " + note + "\n";
  return text;
}

// Calls `visit(row, column, cell, experiment)` for every cell that is not a dash and every
// experiment with its recipe; once with "" if there is none.
void for_each_number(const PaperTable& table, const RunResults& results,
                     const std::function<void(const PaperRow&, size_t, const PaperCell&,
                                              const std::string&)>& visit) {
  for (const PaperRow& row : table.rows)
    for (size_t c = 0; c < row.cells.size(); ++c) {
      if (!row.cells[c]) continue;
      Experiments experiments = experiments_of(row.cells[c]->recipe, results);
      if (experiments.empty()) experiments[""];
      for (const auto& [name, runs] : experiments) visit(row, c, *row.cells[c], name);
    }
}

std::string render_csv(const PaperTable& table, const RunResults& results) {
  FigureTable csv;
  csv.columns = table.labels;
  for (const char* name : {"column", "recipe", "changed", "split", "metric", "seeds", "ours",
                           "ours_std_over_seeds", "ours_std_over_classes", "paper", "paper_std"})
    csv.columns.emplace_back(name);
  const auto text = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.6g}", *value) : std::string();
  };
  for_each_number(table, results,
                  [&](const PaperRow& row, size_t column, const PaperCell& cell,
                      const std::string& experiment) {
                    const auto ours = aggregate(results, cell, experiment);
                    std::vector<std::string> line = row.labels;
                    line.push_back(table.columns[column]);
                    line.push_back(cell.recipe);
                    line.push_back(experiment);
                    line.push_back(cell.split);
                    line.push_back(metric_name(cell.metric));
                    line.push_back(ours ? fmt::format("{}", fmt::join(ours->seeds, " ")) : "");
                    line.push_back(ours ? text(ours->value) : "");
                    line.push_back(ours ? text(ours->over_seeds) : "");
                    line.push_back(ours ? text(ours->over_classes) : "");
                    line.push_back(cell.paper ? text(cell.paper->value) : "");
                    line.push_back(cell.paper ? text(cell.paper->deviation) : "");
                    csv.rows.push_back(std::move(line));
                  });
  return csv.csv();
}

std::string render_json(const PaperTable& table, const RunResults& results) {
  const auto number = [](const std::optional<double>& value) {
    return value ? json(*value) : json();
  };
  json cells = json::array();
  for_each_number(
      table, results,
      [&](const PaperRow& row, size_t column, const PaperCell& cell,
          const std::string& experiment) {
        json entry = {{"row", row.labels},     {"column", table.columns[column]},
                      {"recipe", cell.recipe}, {"changed", experiment},
                      {"split", cell.split},   {"metric", metric_name(cell.metric)}};
        if (const auto ours = aggregate(results, cell, experiment))
          entry["ours"] = {{"value", ours->value},
                           {"std_over_seeds", number(ours->over_seeds)},
                           {"std_over_classes", number(ours->over_classes)},
                           {"seeds", ours->seeds}};
        if (cell.paper)
          entry["paper"] = {{"value", cell.paper->value}, {"std", number(cell.paper->deviation)}};
        cells.push_back(std::move(entry));
      });
  json runs = json::array();
  for (const std::string& recipe : table.recipes()) {
    std::vector<RunResult> all;
    for (const auto& [name, own] : experiments_of(recipe, results))
      all.insert(all.end(), own.begin(), own.end());
    for (const RunResult& run : all) {
      json entry = {{"recipe", recipe}, {"run", run.place.string()}, {"seed", run.seed}};
      for (const char* key :
           {"epochs", "stopped", "accuracy", "accuracy_quantized", "entropy", "entropy_per_class",
            "keys_per_class", "median_keys", "sparsity", "parameters_nonzero", "seconds", "machine",
            "commit", "changed", "data_note"})
        if (run.summary.contains(key)) entry[key] = run.summary.at(key);
      runs.push_back(std::move(entry));
    }
  }
  return json_text({{"table", table.name},
                    {"paper", table.paper},
                    {"title", table.title},
                    {"cells", cells},
                    {"runs", runs},
                    {"notes", notes(table, results)}}) +
         "\n";
}

}  // namespace

PaperTable rows_with_runs(PaperTable table, const RunResults& results) {
  std::erase_if(table.rows,
                [&](const PaperRow& row) { return experiments_of(row, results).empty(); });
  return table;
}

std::vector<std::string> table_formats() {
  return {"text", "markdown", "latex", "csv", "json"};
}

std::string render_table(const PaperTable& table, const RunResults& results,
                         const std::string& format, std::optional<size_t> columns) {
  if (format == "text") return render_text(table, results, columns);
  if (format == "markdown") return render_markdown(table, results);
  if (format == "latex") return render_latex(table, results);
  if (format == "csv") return render_csv(table, results);
  check(format == "json", "unknown table format {}", format);
  return render_json(table, results);
}

}  // namespace remcaps
