#include "remcaps/report/table.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/report/overview.h"

namespace remcaps::cli {
namespace {

struct TableCommand {
  std::string name, format = "text";
  std::vector<std::filesystem::path> runs;
  bool done = false;
};

void list_tables() {
  fmt::print("{:<22} {:<9} what it shows\n", "table", "paper's");
  fmt::print("{:<22} {:<9} All results: ours, the paper's, converged or cut\n", "overview", "-");
  for (const PaperTable& table : paper_tables())
    fmt::print("{:<22} {:<9} {}\n", table.name, table.paper.empty() ? "-" : table.paper,
               table.title);
}

std::string no_runs(const TableCommand& command) {
  std::vector<std::string> places;
  for (const std::filesystem::path& place : command.runs) places.push_back(place.string());
  return fmt::format("no finished run found in {} (remcaps table {} FOLDER looks elsewhere)",
                     places.empty() ? "runs" : fmt::format("{}", fmt::join(places, ", ")),
                     command.name);
}

void run_table(const TableCommand& command) {
  if (command.name == "list") return list_tables();
  const auto columns = terminal_columns(STDOUT_FILENO);
  std::vector<std::filesystem::path> places = command.runs;
  if (places.empty() && std::filesystem::is_directory("runs")) places = {"runs"};
  if (command.name == "overview") {
    const FoundResults found = find_results(places);
    fmt::print("{}", render_overview(found.results, command.format, columns));
    print_notes(found.notes());
    if (found.results.empty()) print_notes({no_runs(command)});
    return;
  }
  PaperTable table = paper_table(command.name);
  const FoundResults found = find_results(places);
  std::vector<std::string> notes = found.notes(table.recipes());
  if (found.results.empty()) notes.push_back(no_runs(command));
  if (command.done) table = rows_with_runs(std::move(table), found.results);
  fmt::print("{}", render_table(table, found.results, command.format, columns));
  print_notes(notes);
}

}  // namespace

void add_table(CLI::App& app) {
  auto* command =
      app.add_subcommand("table", "One of the paper's tables, our numbers beside the paper's");
  auto options = std::make_shared<TableCommand>();
  command->add_option("name", options->name, "The table; `list` names them all")->required();
  command->add_option("runs", options->runs,
                      "Run folders, collected summaries, or folders with some of them below "
                      "(default: runs)");
  command->add_option("--format", options->format, "text, markdown, latex, csv or json")
      ->capture_default_str()
      ->check(CLI::IsMember(table_formats()));
  command->add_flag("--done", options->done, "Only rows that have a run");
  command->footer(
      "Examples:\n  remcaps table list\n  remcaps table mnist runs --format latex\n"
      "  remcaps table main results --done --format markdown");
  command->callback([options] { run_table(*options); });
}

}  // namespace remcaps::cli
