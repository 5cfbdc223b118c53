#include "remcaps/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "remcaps/base/error.h"
#include "remcaps/report/figure.h"

namespace remcaps {
using nlohmann::json;

namespace {

// 6,804,384 -> "6.8M", 42,871 -> "43k".
std::string short_count(double value) {
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.0f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

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
  bool paper = false;       // the paper's numbers, below ours
  bool ends_block = false;  // a rule belongs below it
};

std::string our_text(const RunResults& results, const std::optional<PaperCell>& cell,
                     const std::string& plus_minus) {
  if (!cell) return "-";
  const auto ours = aggregate(results, *cell);
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
  return result;
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
    Line ours{row.labels, false, false};
    ours.cells.emplace_back("ours");
    for (const auto& cell : row.cells) ours.cells.push_back(our_text(results, cell, plus_minus));
    result.push_back(std::move(ours));
    if (has_paper_numbers(row)) {
      Line paper{std::vector<std::string>(row.labels.size()), true, false};
      paper.cells.emplace_back("paper");
      for (const auto& cell : row.cells) paper.cells.push_back(paper_text(cell, plus_minus));
      result.push_back(std::move(paper));
    }
    const bool last = r + 1 == table.rows.size();
    result.back().ends_block =
        !last && row.labels.size() > 1 && table.rows[r + 1].labels[0] != row.labels[0];
  }
  return result;
}

std::string seeds_text(const std::vector<RunResult>& runs) {
  std::vector<std::string> parts;
  for (const RunResult& run : runs)
    parts.push_back(fmt::format("{} ({} epochs)", run.seed, run.summary.value("epochs", 0)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// One line per recipe with runs, then the recipes without.
std::vector<std::string> notes(const PaperTable& table, const RunResults& results) {
  std::vector<std::string> result;
  if (!table.note.empty()) result.push_back(table.note);
  std::vector<std::string> missing;
  bool any_entropy = false;
  for (const std::string& recipe : table.recipes()) {
    const auto found = results.find(recipe);
    if (found == results.end()) {
      missing.push_back(recipe);
      continue;
    }
    const auto number = [&](Metric metric) {
      return aggregate(results, {recipe, metric, "test", -1, std::nullopt});
    };
    std::string line = fmt::format("{}: seeds {}", recipe, seeds_text(found->second));
    if (const auto plain = number(Metric::kAccuracy))
      line += fmt::format("; accuracy without quantization {:.2f}±{:.2f}", plain->value,
                          *plain->over_seeds);
    if (const auto entropy = number(Metric::kEntropy)) {
      any_entropy = true;
      line += fmt::format("; entropy ±{:.2f} over classes, ±{:.2f} over seeds",
                          entropy->over_classes.value_or(0), *entropy->over_seeds);
    }
    std::vector<double> keys;
    for (const RunResult& run : found->second)
      if (run.summary.contains("median_keys")) keys.push_back(run.summary.at("median_keys"));
    if (!keys.empty()) {
      std::sort(keys.begin(), keys.end());
      line += fmt::format("; keys {:g}", keys[keys.size() / 2]);
    }
    const RunResult& best = best_run(found->second);
    line += fmt::format("; best seed {}, {} parameters left", best.seed,
                        short_count(best.summary.value("parameters_nonzero", 0.0)));
    result.push_back(std::move(line));
  }
  if (any_entropy)
    result.emplace_back("The ± of an entropy in the table is over classes, as published.");
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

// Columns of a UTF-8 text: continuation bytes take no place.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

std::string render_text(const PaperTable& table, const RunResults& results) {
  const std::vector<std::string> heads = headings(table);
  const std::vector<Line> all = lines(table, results, "±");
  std::vector<size_t> widths;
  for (size_t c = 0; c < heads.size(); ++c) {
    size_t width = width_of(heads[c]);
    for (const Line& line : all) width = std::max(width, width_of(line.cells[c]));
    widths.push_back(width);
  }
  const auto print = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c)
      line += padded(cells[c], widths[c], c <= table.labels.size()) + "  ";
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  };
  std::string text = title_of(table) + "\n\n" + print(heads);
  for (const Line& line : all) {
    text += print(line.cells);
    if (line.ends_block) text += "\n";
  }
  text += "\n";
  for (const std::string& note : notes(table, results)) text += note + "\n";
  return text;
}

std::string render_markdown(const PaperTable& table, const RunResults& results) {
  const auto print = [](const std::vector<std::string>& cells) {
    return fmt::format("| {} |\n", fmt::join(cells, " | "));
  };
  const std::vector<std::string> heads = headings(table);
  std::string text = fmt::format("**{}**\n\n", title_of(table)) + print(heads) + "|";
  for (size_t c = 0; c < heads.size(); ++c) text += c <= table.labels.size() ? " --- |" : " ---: |";
  text += "\n";
  for (const Line& line : lines(table, results, " ± ")) text += print(line.cells);
  text += "\n";
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
                     std::string(table.columns.size(), 'c') + "}\n\\toprule\n" + print(heads) +
                     "\\midrule\n";
  const std::vector<Line> all = lines(table, results, "±");
  for (const Line& line : all) {
    text += print(line.cells);
    if (line.ends_block) text += "\\midrule\n";
  }
  text += fmt::format("\\bottomrule\n\\end{{tabular}}\n\\caption{{{}}}\n\\end{{table}}\n",
                      latex_escaped(title_of(table)));
  for (const std::string& note : notes(table, results)) text += "% " + note + "\n";
  return text;
}

const char* metric_name(Metric metric) {
  switch (metric) {
    case Metric::kAccuracy:
      return "accuracy";
    case Metric::kAccuracyQuantized:
      return "accuracy_quantized";
    case Metric::kEntropy:
      return "entropy";
    case Metric::kSparsity:
      return "sparsity";
    case Metric::kParameters:
      return "parameters";
    case Metric::kKeys:
      return "keys";
  }
  return "";
}

// Calls `visit(row, column, cell)` for every cell that is not a dash.
void for_each_cell(const PaperTable& table,
                   const std::function<void(const PaperRow&, size_t, const PaperCell&)>& visit) {
  for (const PaperRow& row : table.rows)
    for (size_t c = 0; c < row.cells.size(); ++c)
      if (row.cells[c]) visit(row, c, *row.cells[c]);
}

std::string render_csv(const PaperTable& table, const RunResults& results) {
  FigureTable csv;
  csv.columns = table.labels;
  for (const char* name : {"column", "recipe", "split", "metric", "seeds", "ours",
                           "ours_std_over_seeds", "ours_std_over_classes", "paper", "paper_std"})
    csv.columns.emplace_back(name);
  const auto text = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.6g}", *value) : std::string();
  };
  for_each_cell(table, [&](const PaperRow& row, size_t column, const PaperCell& cell) {
    const auto ours = aggregate(results, cell);
    std::vector<std::string> line = row.labels;
    line.push_back(table.columns[column]);
    line.push_back(cell.recipe);
    line.push_back(cell.split);
    line.emplace_back(metric_name(cell.metric));
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
  for_each_cell(table, [&](const PaperRow& row, size_t column, const PaperCell& cell) {
    json entry = {{"row", row.labels},
                  {"column", table.columns[column]},
                  {"recipe", cell.recipe},
                  {"split", cell.split},
                  {"metric", metric_name(cell.metric)}};
    if (const auto ours = aggregate(results, cell))
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
    const auto found = results.find(recipe);
    if (found == results.end()) continue;
    for (const RunResult& run : found->second) {
      json entry = {{"recipe", recipe}, {"run", run.folder.string()}, {"seed", run.seed}};
      for (const char* key :
           {"epochs", "stopped", "accuracy", "accuracy_quantized", "entropy", "entropy_per_class",
            "keys_per_class", "median_keys", "sparsity", "parameters_nonzero"})
        if (run.summary.contains(key)) entry[key] = run.summary.at(key);
      runs.push_back(std::move(entry));
    }
  }
  return json{{"table", table.name}, {"paper", table.paper}, {"title", table.title},
              {"cells", cells},      {"runs", runs},         {"notes", notes(table, results)}}
             .dump() +
         "\n";
}

}  // namespace

std::vector<std::string> table_formats() {
  return {"text", "markdown", "latex", "csv", "json"};
}

std::string render_table(const PaperTable& table, const RunResults& results,
                         const std::string& format) {
  if (format == "text") return render_text(table, results);
  if (format == "markdown") return render_markdown(table, results);
  if (format == "latex") return render_latex(table, results);
  if (format == "csv") return render_csv(table, results);
  check(format == "json", "unknown table format {}", format);
  return render_json(table, results);
}

}  // namespace remcaps
