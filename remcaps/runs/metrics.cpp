#include "remcaps/runs/metrics.h"

#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"

namespace remcaps {

using nlohmann::json;

namespace {

// Eight digits are enough for a float.
std::string cell(double value) {
  return fmt::format("{:.8g}", value);
}
std::string cell(const std::optional<double>& value) {
  return value ? cell(*value) : "";
}
std::string cell(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "";
}

std::string row(const EpochRecord& record) {
  const std::vector<std::string> cells = {
      std::to_string(record.epoch),
      std::to_string(record.step),
      cell(record.lr),
      cell(record.train_loss),
      cell(record.train_accuracy),
      cell(record.validation_loss),
      cell(record.validation_accuracy),
      cell(record.test_loss),
      cell(record.test_accuracy),
      cell(record.sparsity),
      std::to_string(record.parameters_nonzero),
      cell(record.threshold),
      cell(record.evaluations),
      cell(record.loss_before_pruning),
      cell(record.loss_after_pruning),
      cell(record.accuracy_quantized),
      cell(record.entropy),
      cell(record.keys),
  };
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string header() {
  return fmt::format("{}\n", fmt::join(MetricsFile::columns(), ","));
}

}  // namespace

std::vector<std::string> MetricsFile::columns() {
  return {"epoch",
          "step",
          "lr",
          "train_loss",
          "train_accuracy",
          "validation_loss",
          "validation_accuracy",
          "test_loss",
          "test_accuracy",
          "sparsity",
          "parameters_nonzero",
          "threshold",
          "evaluations",
          "loss_before_pruning",
          "loss_after_pruning",
          "accuracy_quantized",
          "entropy",
          "keys"};
}

MetricsFile::MetricsFile(std::filesystem::path path) : path_(std::move(path)) {
  if (!std::filesystem::exists(path_)) write_atomically(path_, header());
}

void MetricsFile::append(const EpochRecord& record) {
  append_to_file(path_, row(record));
}

void MetricsFile::cut(int64_t rows) {
  std::istringstream in(read_file(path_));
  std::string line, kept;
  check(std::getline(in, line) && line + "\n" == header(),
        "{}: its first line is not the header this version writes", path_.string());
  kept = header();
  for (int64_t i = 0; i < rows; ++i) {
    check(static_cast<bool>(std::getline(in, line)) && !in.eof(),
          "{}: {} row(s); the run's state is after epoch {} (edited by hand?)", path_.string(), i,
          rows - 1);
    kept += line + "\n";
  }
  write_atomically(path_, kept);
}

json read_metrics(const std::filesystem::path& file) {
  auto columns = json::object();
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return columns;
  std::istringstream text(read_file(file));
  std::vector<std::string> names;
  std::string line;
  for (int64_t number = 1; std::getline(text, line); ++number) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    if (!line.empty() && line.back() == ',') cells.emplace_back();
    if (number == 1) {
      check(!cells.empty() && cells[0] == "epoch",
            "{}: line 1 does not name the columns of a run's metrics, epoch first", file.string());
      names = cells;
      for (const auto& name : names) columns[name] = json::array();
      continue;
    }
    check(cells.size() == names.size(), "{}: line {} has {} cells; expected {}", file.string(),
          number, cells.size(), names.size());
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string& cell = cells[c];
      double value = 0;
      const auto [end, status] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      check(cell.empty() || (status == std::errc() && end == cell.data() + cell.size()),
            "{}: line {}, {} is \"{}\"; expected a number", file.string(), number, names[c], cell);
      columns[names[c]].push_back(cell.empty() ? json(nullptr) : json(value));
    }
  }
  check(!names.empty(), "{}: is empty; expected a run's metrics", file.string());
  return columns;
}

TreeCurve tree_curve(const json& columns, const std::string& source) {
  TreeCurve curve;
  const std::vector<std::pair<const char*, std::vector<double>*>> parts = {
      {"epoch", &curve.epoch},
      {"sparsity", &curve.sparsity},
      {"accuracy_quantized", &curve.accuracy_quantized},
      {"entropy", &curve.entropy},
      {"keys", &curve.keys}};
  const auto column = [&](const char* name) {
    const auto found = columns.find(name);
    check(found != columns.end() && found->is_array(), "{}: no column {}", source, name);
    return *found;
  };
  const size_t rows = column("epoch").size();
  const json entropies = column("entropy");
  for (const auto& [name, values] : parts) {
    const json all = column(name);
    check(all.size() == rows, "{}: {} values of {}, {} epochs", source, all.size(), name, rows);
    for (size_t i = 0; i < rows; ++i) {
      if (!entropies.at(i).is_number()) continue;
      check(all[i].is_number(), "{}: row {} has an entropy, but no {}", source, i + 1, name);
      values->push_back(all[i]);
    }
  }
  return curve;
}

json to_json(const TreeCurve& curve) {
  return {{"epoch", curve.epoch},
          {"sparsity", curve.sparsity},
          {"accuracy_quantized", curve.accuracy_quantized},
          {"entropy", curve.entropy},
          {"keys", curve.keys}};
}

}  // namespace remcaps
