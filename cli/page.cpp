#include "remcaps/report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/text.h"

namespace remcaps::cli {

void add_page(CLI::App& app) {
  auto* command = app.add_subcommand(
      "page", "One HTML file in which one draws and sees the parse tree, without a server");
  struct Command {
    std::filesystem::path out = "draw.html";
    DrawPageOptions options;
  };
  auto options = std::make_shared<Command>();
  command
      ->add_option("run", options->options.runs,
                   "A run's folder, a weights file or zoo:NAME; two of one data set are shown side "
                   "by side")
      ->required()
      ->expected(1, 2);
  command->add_option("--out", options->out, "The file to write")->capture_default_str();
  command->add_option("--data", options->options.data,
                      "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps)");
  add_threads(*command);
  command->footer(
      "Example:\n  remcaps page zoo:mnist/dr-capsnet-rem --out draw.html\n\n"
      "The networks run in the browser, on what one draws or drops there. The file is complete "
      "and\n"
      "asks nothing of a network. Dictionaries and test images are those of the test split; a "
      "page\n"
      "that is made without the data set has none.");
  command->callback([options] {
    const DrawPageSummary summary = write_draw_page(options->options, options->out);
    if (!summary.note.empty()) print_notes({summary.note});
    fmt::print("{}: {} of {}\n", options->out.string(),
               human_bytes(static_cast<double>(summary.bytes)), fmt::join(summary.networks, "; "));
  });
}

}  // namespace remcaps::cli
