#include "cli/status.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/json.h"
#include "remcaps/base/progress.h"

namespace remcaps::cli {
namespace {

using State = RunStatus::State;

std::string epochs_text(const RunStatus& run) {
  if (run.state == State::kWaiting || run.state == State::kStarting) return "";
  const std::string done = run.state == State::kRunning ? fmt::format("{:.1f}", run.epochs)
                                                        : fmt::format("{:.0f}", run.epochs);
  return run.most_epochs > 0 ? fmt::format("{}/{}", done, run.most_epochs) : done;
}

std::string number_text(const std::optional<double>& value, double factor, int digits) {
  return value ? fmt::format("{:.{}f}", *value * factor, digits) : "";
}

std::string left_text(const RunStatus& run) {
  if (!run.seconds_left) return "";
  return (run.at_least ? "at least " : "") + human_seconds(*run.seconds_left);
}

// "42", or "42-2" for another run of that seed in seed-42-2.
std::string seed_text(const RunStatus& run) {
  return run.folder.filename().string().substr(std::string_view("seed-").size());
}

bool under_way(const std::vector<RunStatus>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const RunStatus& run) {
    return run.state == State::kWaiting || run.state == State::kStarting ||
           run.state == State::kRunning;
  });
}

// On a terminal the table is drawn over the last one; elsewhere it is printed when it has changed.
void watch(const std::filesystem::path& folder) {
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  for (std::string before;;) {
    const auto runs = find_statuses(folder);
    const std::string text = status_text(runs, terminal_columns(STDOUT_FILENO));
    if (text != before) fmt::print("{}{}", terminal ? "\033[H\033[2J" : "", text);
    std::fflush(stdout);
    if (!under_way(runs)) return;
    before = text;
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
}

void print_json(const std::vector<RunStatus>& runs) {
  nlohmann::json list = nlohmann::json::array();
  for (const RunStatus& run : runs) list.push_back(to_json(run));
  fmt::print("{}\n", json_text({{"runs", list}}));
}

}  // namespace

std::string status_text(const std::vector<RunStatus>& runs, std::optional<size_t> columns,
                        bool only_begun) {
  const auto shown = [&](const RunStatus& run) {
    return !only_begun || run.state == State::kStarting || run.state == State::kRunning;
  };
  std::map<State, int> counts;
  for (const RunStatus& run : runs) ++counts[run.state];
  std::string text;
  for (const auto& [state, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state_name(state));
  if (std::none_of(runs.begin(), runs.end(), shown)) return text + "\n";

  // The higher the rank, the sooner a column is left out where there is no room.
  struct Column {
    const char* heading;
    size_t width;
    int rank;
  };
  std::vector<Column> table = {
      {"state", 9, 0}, {"recipe", 10, 0}, {"seed", 6, 0},     {"epoch", 9, 0},   {"loss", 8, 4},
      {"val %", 7, 1}, {"test %", 7, 0},  {"sparse %", 8, 2}, {"entropy", 8, 3}, {"left", 4, 0}};
  constexpr size_t kRecipe = 1;
  std::vector<std::vector<std::string>> rows;
  for (const RunStatus& run : runs) {
    if (!shown(run)) continue;
    rows.push_back({state_name(run.state), run.recipe, seed_text(run), epochs_text(run),
                    number_text(run.loss, 1, 4), number_text(run.validation_accuracy, 100, 2),
                    number_text(run.test_accuracy, 100, 2), number_text(run.sparsity, 100, 2),
                    number_text(run.entropy, 1, 2),
                    run.reason.empty() ? left_text(run) : run.reason});
    table[kRecipe].width = std::max(table[kRecipe].width, run.recipe.size());
    if (run.reason.empty())
      table.back().width = std::max(table.back().width, rows.back().back().size());
  }
  const auto width = [&] {
    return std::accumulate(table.begin(), table.end(), table.size(),
                           [](size_t sum, const Column& each) { return sum + each.width; });
  };
  constexpr int kEmpty = 5;
  for (size_t c = kRecipe + 1; c + 1 < table.size(); ++c)
    if (std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row[c].empty(); }))
      table[c].rank = kEmpty;
  std::vector<std::string> left_out;
  while (columns && width() > *columns) {
    const auto least =
        std::max_element(table.begin(), table.end(),
                         [](const Column& a, const Column& b) { return a.rank < b.rank; });
    if (least->rank == 0) break;
    if (least->rank < kEmpty) left_out.push_back(least->heading);
    for (auto& row : rows) row.erase(row.begin() + (least - table.begin()));
    table.erase(least);
  }
  if (columns && width() > *columns) {
    const size_t over = width() - *columns;
    size_t& recipe = table[kRecipe].width;
    recipe = std::max<size_t>(10, recipe - std::min(recipe, over));
    for (auto& row : rows) row[kRecipe] = shortened_label(row[kRecipe], recipe);
  }
  if (!left_out.empty())
    text += fmt::format("  (a wider terminal has: {})", fmt::join(left_out, ", "));
  text += "\n";
  const auto line = [&](const auto& cell) {
    std::string row;
    for (size_t c = 0; c < table.size(); ++c)
      row += c <= kRecipe           ? fmt::format("{:<{}} ", cell(c), table[c].width)
             : c + 1 < table.size() ? fmt::format("{:>{}} ", cell(c), table[c].width)
                                    : " " + cell(c);
    row.erase(row.find_last_not_of(' ') + 1);
    text += printable(row) + "\n";
  };
  line([&](size_t c) { return std::string(table[c].heading); });
  for (const auto& row : rows) line([&](size_t c) { return row[c]; });
  return text;
}

void add_status(CLI::App& app) {
  auto* command =
      app.add_subcommand("status", "All runs of a folder at a glance: waiting, running, finished");
  struct Options {
    std::filesystem::path folder = "runs";
    bool watch = false, json = false;
  };
  auto options = std::make_shared<Options>();
  command->add_option("folder", options->folder, "Folder of the runs")->capture_default_str();
  auto* watch_flag = command->add_flag(
      "--watch", options->watch, "Show it again every two seconds, until nothing is left to do");
  command->add_flag("--json", options->json, "One JSON object on stdout")->excludes(watch_flag);
  command->footer("Example:\n  remcaps status runs --watch");
  command->callback([options] {
    if (options->watch) return watch(options->folder);
    const auto runs = find_statuses(options->folder);
    if (options->json) return print_json(runs);
    fmt::print("{}",
               runs.empty() ? "no runs\n" : status_text(runs, terminal_columns(STDOUT_FILENO)));
  });
}

}  // namespace remcaps::cli
