#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/text.h"
#include "remcaps/report/html_report.h"

namespace remcaps::cli {

void add_report(CLI::App& app) {
  auto* command = app.add_subcommand(
      "report", "One HTML file on some runs: numbers, curves, parse trees, an image explorer");
  struct Command {
    std::filesystem::path out = "report.html";
    HtmlReportOptions options;
    PlaceOptions place;
  };
  auto options = std::make_shared<Command>();
  command
      ->add_option(
          "run", options->options.runs,
          "Run folders, weights files or zoo:NAME; RUN@epoch-0012 is another checkpoint of a run. "
          "Runs of one data set can be compared image by image")
      ->required();
  command->add_option("--out", options->out, "The file to write")->capture_default_str();
  command->add_option("--title", options->options.title, "Heading of the report");
  command
      ->add_option("--split", options->options.split,
                   "train, validation, test or another the data set has")
      ->capture_default_str();
  command->add_option("--samples", options->options.samples, "Images in the explorer")
      ->check(between(1, 2000))
      ->capture_default_str();
  command->add_flag_callback(
      "--all-networks",
      [options] { options->options.most_bytes = std::numeric_limits<size_t>::max(); },
      "Put every network into the file, however large it becomes, so that all of them answer for "
      "pictures that are dropped on it (default: those that fit into 20 MB)");
  options->place.add_to(*command);
  command->footer(
      "Example:\n  remcaps report runs/fashion-mnist/eff-capsnet/seed-42 "
      "runs/fashion-mnist/eff-capsnet-rem/seed-42 --out report.html\n\n"
      "The file is complete: it opens in a browser without a network.");
  command->callback([options] {
    options->options.data = options->place.data;
    options->options.device = parse_device(options->place.device);
    const HtmlReportSummary summary = write_html_report(options->options, options->out);
    fmt::print("{}: {} of {}\n", options->out.string(),
               human_bytes(static_cast<double>(summary.bytes)), fmt::join(summary.runs, "; "));
  });
}

}  // namespace remcaps::cli
