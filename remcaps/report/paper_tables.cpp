#include "remcaps/report/paper_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "remcaps/base/config.h"
#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {

namespace {

struct Column {
  std::string heading, recipe = "*", metric, split = "test";
};

double read_number(const std::string& text, const std::string& where) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(!text.empty() && status == std::errc() && end == text.data() + text.size(),
        "{}: \"{}\"; expected a number such as 92.76 or 92.76±0.21", where, text);
  return value;
}

// "92.76±0.21" or "80.71"; nothing for "-".
std::optional<PaperNumber> read_paper_number(const std::string& word, const std::string& where) {
  static const std::string kPlusMinus = "±";
  if (word == "-") return std::nullopt;
  const size_t at = word.find(kPlusMinus);
  PaperNumber number{read_number(word.substr(0, at), where), std::nullopt};
  if (at != std::string::npos)
    number.deviation = read_number(word.substr(at + kPlusMinus.size()), where);
  return number;
}

Column read_column(const YAML::Node& node, const std::string& where) {
  std::vector<std::string> metrics;
  for (const auto& [name, metric] : metric_names()) metrics.push_back(name);
  Column column;
  ConfigSection section(node, where);
  section.key("heading", column.heading);
  section.key("recipe", column.recipe);
  section.key("metric", column.metric, metrics);
  section.key("split", column.split);
  section.finish();
  check(metric_names().contains(column.metric), "{}: it has no metric", where);
  return column;
}

PaperRow read_row(const YAML::Node& node, const std::vector<Column>& columns,
                  const std::string& where) {
  PaperRow row;
  std::string recipe, paper;
  bool unquantized = false;
  int64_t class_index = -1;
  ConfigSection section(node, where);
  section.key("labels", row.labels);
  section.key("recipe", recipe);
  section.key("paper", paper);
  section.key("unquantized", unquantized);
  section.key("class", class_index, {-1, 1000});
  section.finish();

  std::vector<std::string> words;
  std::istringstream stream(paper);
  for (std::string word; stream >> word;) words.push_back(word);
  check(paper.empty() || words.size() == columns.size(), "{}: {} numbers for {} columns", where,
        words.size(), columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    PaperCell cell;
    cell.recipe = columns[c].recipe;
    if (const size_t star = cell.recipe.find('*'); star != std::string::npos)
      cell.recipe.replace(star, 1, recipe);
    cell.metric = metric_names().at(columns[c].metric);
    if (unquantized && cell.metric == Metric::kAccuracyQuantized) cell.metric = Metric::kAccuracy;
    cell.split = columns[c].split;
    cell.class_index = class_index;
    if (!words.empty()) cell.paper = read_paper_number(words[c], where);
    if (!words.empty() && !cell.paper)
      row.cells.emplace_back(std::nullopt);
    else
      row.cells.emplace_back(std::move(cell));
  }
  return row;
}

PaperTable read_table(const YAML::Node& node, const std::string& source) {
  PaperTable table;
  // Columns and rows have sections of their own.
  YAML::Node plain = YAML::Clone(node);
  plain.remove("columns");
  plain.remove("rows");
  ConfigSection section(plain, source);
  section.key("name", table.name);
  section.key("paper", table.paper);
  section.key("title", table.title);
  section.key("note", table.note);
  section.key("labels", table.labels);
  section.finish();
  const std::string where = fmt::format("{}, table {}", source, table.name);
  std::vector<Column> columns;
  for (const YAML::Node& column : node["columns"]) {
    columns.push_back(read_column(column, fmt::format("{}, column {}", where, columns.size() + 1)));
    table.columns.push_back(columns.back().heading);
  }
  for (const YAML::Node& row : node["rows"]) {
    table.rows.push_back(
        read_row(row, columns, fmt::format("{}, row {}", where, table.rows.size() + 1)));
    check(table.rows.back().labels.size() == table.labels.size(),
          "{}, row {}: {} labels; expected {}", where, table.rows.size(),
          table.rows.back().labels.size(), table.labels.size());
  }
  return table;
}

}  // namespace

const std::map<std::string, Metric>& metric_names() {
  static const std::map<std::string, Metric> names = {
      {"accuracy", Metric::kAccuracy},     {"accuracy_quantized", Metric::kAccuracyQuantized},
      {"entropy", Metric::kEntropy},       {"sparsity", Metric::kSparsity},
      {"parameters", Metric::kParameters}, {"keys", Metric::kKeys},
  };
  return names;
}

std::string metric_name(Metric metric) {
  for (const auto& [name, value] : metric_names())
    if (value == metric) return name;
  return "";
}

std::vector<std::string> PaperTable::recipes() const {
  std::vector<std::string> names;
  for (const PaperRow& row : rows)
    for (const auto& cell : row.cells)
      if (cell && std::find(names.begin(), names.end(), cell->recipe) == names.end())
        names.push_back(cell->recipe);
  return names;
}

std::vector<PaperTable> read_paper_tables(const std::string& yaml, const std::string& source) {
  std::vector<PaperTable> tables;
  try {
    for (const YAML::Node& node : YAML::Load(yaml)) tables.push_back(read_table(node, source));
  } catch (const YAML::Exception& error) {
    fail("{}: {}", source, error.what());
  }
  return tables;
}

const std::vector<PaperTable>& paper_tables() {
  static const std::vector<PaperTable> tables =
      read_paper_tables(std::string(paper_tables_text()), "paper_tables.yaml");
  return tables;
}

const PaperTable& paper_table(const std::string& name) {
  std::vector<std::string> names;
  for (const PaperTable& table : paper_tables()) {
    if (table.name == name) return table;
    names.push_back(table.name);
  }
  throw UsageError(fmt::format("no table {}{}", name, suggestion(name, names)));
}

}  // namespace remcaps
