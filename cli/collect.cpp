#include "remcaps/report/collect.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"

namespace remcaps::cli {

void add_collect(CLI::App& app) {
  auto* command = app.add_subcommand(
      "collect", "Copy finished runs' summaries to a folder of results, for `table` to read");
  struct Command {
    std::vector<std::filesystem::path> runs;
    CollectOptions options;
  };
  auto options = std::make_shared<Command>();
  command->add_option("runs", options->runs, "Run folders, or folders with runs somewhere below")
      ->required();
  command->add_option("--out", options->options.out, "Writes OUT/<recipe>/seed-<n>.json")
      ->capture_default_str();
  command->add_option("--machine", options->options.machine,
                      "What they were trained on, instead of what the summaries say");
  command->add_option("--commit", options->options.commit, "The same for the commit");
  command->add_option("--data-note", options->options.data_note,
                      "How the data differ from the official ones, instead of what they say");
  command->footer(
      "Example:\n  remcaps collect runs/mnist --out results\n  remcaps table mnist results");
  command->callback([options] {
    std::vector<std::string> names;
    for (const auto& run : options->runs) names.push_back(run.string());
    const FoundResults found = find_results(options->runs);
    print_notes(found.notes());
    check(!found.results.empty(), "{}: no finished run there{}", fmt::join(names, ", "),
          found.left_out.empty() ? "" : " that could be collected");
    for (const auto& file : collect_results(found.results, options->options))
      fmt::print("{}\n", file.string());
  });
}

}  // namespace remcaps::cli
