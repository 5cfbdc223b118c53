#include "remcaps/runs/metrics.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"

namespace remcaps {
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
  const std::string text = row(record);
  const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  check(fd >= 0, "{}: cannot append: {}", path_.string(), std::strerror(errno));
  // One write() of one short row, so that a reader never sees half of it.
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;  // a short write gives no reason
  const bool whole = written == static_cast<ssize_t>(text.size());
  const int flush_error = whole && ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  check(whole, "{}: cannot append: {}", path_.string(), std::strerror(error));
  check(flush_error == 0, "{}: cannot flush to disk: {}", path_.string(),
        std::strerror(flush_error));
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

nlohmann::json read_metrics(const std::filesystem::path& file) {
  auto columns = nlohmann::json::object();
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
      for (const auto& name : names) columns[name] = nlohmann::json::array();
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
      columns[names[c]].push_back(cell.empty() ? nlohmann::json(nullptr) : nlohmann::json(value));
    }
  }
  check(!names.empty(), "{}: is empty; expected a run's metrics", file.string());
  return columns;
}

}  // namespace remcaps
