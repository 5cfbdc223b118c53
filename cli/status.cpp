#include "cli/status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
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
    const std::string text = status_text(runs);
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

std::string status_text(const std::vector<RunStatus>& runs, bool only_begun) {
  const auto shown = [&](const RunStatus& run) {
    return !only_begun || run.state == State::kStarting || run.state == State::kRunning;
  };
  std::map<State, int> counts;
  size_t width = 10;
  for (const RunStatus& run : runs) {
    ++counts[run.state];
    if (!shown(run)) continue;
    width = std::max(width, run.recipe.size());
  }
  std::string text;
  for (const auto& [state, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state_name(state));
  text += "\n";
  const auto line = [&](auto&&... cells) {
    std::string row =
        fmt::format(fmt::runtime("{:<9} {:<{}} {:>6} {:>9} {:>8} {:>7} {:>8} {:>8}  {}"), cells...);
    row.erase(row.find_last_not_of(' ') + 1);
    text += printable(row) + "\n";
  };
  if (std::none_of(runs.begin(), runs.end(), shown)) return text;
  line("state", "recipe", width, "seed", "epoch", "loss", "acc %", "sparse %", "entropy", "left");
  for (const RunStatus& run : runs) {
    if (!shown(run)) continue;
    line(state_name(run.state), run.recipe, width, seed_text(run), epochs_text(run),
         number_text(run.loss, 1, 4), number_text(run.accuracy, 100, 2),
         number_text(run.sparsity, 100, 2), number_text(run.entropy, 1, 2),
         run.reason.empty() ? left_text(run) : run.reason);
  }
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
    fmt::print("{}", runs.empty() ? "no runs\n" : status_text(runs));
  });
}

}  // namespace remcaps::cli
