#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/report/figure.h"
#include "remcaps/report/reproduction.h"
#include "remcaps/report/table.h"

namespace remcaps::cli {
namespace {

struct ReproduceCommand {
  std::string name, seeds = "42", format = "text";
  std::filesystem::path figures = "figures";
  bool dry = false;
  ReproduceOptions options;
  PlaceOptions place;
};

void list_reproductions() {
  for (const Reproduction& each : reproductions())
    fmt::print("{:<34} {:>2} recipes  {}\n", each.name, each.recipes.size(), each.about);
}

const char* state_text(PlannedRun::State state) {
  switch (state) {
    case PlannedRun::State::kMissing:
      return "to train";
    case PlannedRun::State::kInterrupted:
      return "to resume";
    case PlannedRun::State::kFinished:
      return "finished";
  }
  return "";
}

void show_result(const ReproduceCommand& command, const Reproduction& wanted,
                 const std::vector<PlannedRun>& plan) {
  if (wanted.figure.empty()) {
    std::vector<std::filesystem::path> folders;
    for (const PlannedRun& run : plan)
      if (run.state == PlannedRun::State::kFinished) folders.push_back(run.folder);
    const FoundResults found = find_results(folders);
    fmt::print("{}", render_table(paper_table(wanted.name), found.results, command.format));
    print_notes(found.notes());
    return;
  }
  // A figure shows one seed of each recipe. The run of a decoder represents its encoder.
  FigureOptions figure;
  figure.data = command.place.data;
  figure.device = command.options.device;
  for (const PlannedRun& run : plan)
    if (run.seed == command.options.seeds.front()) figure.runs.push_back(run.folder.string());
  if (wanted.figure == "perturbations") figure.runs.erase(figure.runs.begin());
  const FigureFiles files = write_figure(wanted.figure, figure, command.figures / wanted.name);
  fmt::print("{}\n{}\n", files.svg.string(), files.csv.string());
}

void run_reproduce(ReproduceCommand command) {
  if (command.name == "list") return list_reproductions();
  const Reproduction& wanted = reproduction(command.name);
  command.options.seeds = parse_seeds(command.seeds);
  command.options.data = command.place.data;
  command.options.device = parse_device(command.place.device);
  std::vector<PlannedRun> plan = plan_runs(wanted, command.options);
  if (command.dry) {
    for (const PlannedRun& run : plan)
      fmt::print("{:<10} {} seed {}\n", state_text(run.state), run.recipe, run.seed);
    return;
  }
  int failures = 0;
  train_missing(
      plan, command.options,
      [](const PlannedRun& run, const std::string& limit) {
        say("{}, seed {}: {} ({})", run.recipe, run.seed, state_text(run.state), limit);
      },
      [&failures](const PlannedRun& run, const std::string& message) {
        say("{}, seed {}: {}", run.recipe, run.seed, message);
        ++failures;
      });
  if (wanted.figure.empty() || failures == 0) show_result(command, wanted, plan);
  std::fflush(stdout);
  check(failures == 0, "{} of {} runs of {} could not be made", failures, plan.size(),
        command.name);
}

}  // namespace

void add_reproduce(CLI::App& app) {
  auto* command = app.add_subcommand(
      "reproduce", "Train what is missing for one of the paper's tables or figures, then print it");
  auto options = std::make_shared<ReproduceCommand>();
  command->add_option("name", options->name, "A table or figure; `list` names them all")
      ->required();
  command->add_option("--seeds", options->seeds, "42..46 or 42,45")->capture_default_str();
  command
      ->add_option("--budget", options->options.budget,
                   "Minutes for all runs together, shared equally (default: no limit)")
      ->check(above_zero());
  command
      ->add_option("--runs", options->options.runs,
                   "Folder of the runs, <recipe>/seed-<n> below it; finished ones are used, "
                   "interrupted ones resumed")
      ->capture_default_str();
  command
      ->add_option("--set", options->options.overrides,
                   "Change a key of every recipe, repeatable: train.epochs=20")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--format", options->format, "A table's: text, markdown, latex, csv or json")
      ->capture_default_str()
      ->check(CLI::IsMember(table_formats()));
  command->add_option("--figures", options->figures, "Folder for figures")->capture_default_str();
  command->add_flag("--dry-run", options->dry, "Only say what would be trained");
  options->place.add_to(*command);
  command->footer(
      "Examples:\n  remcaps reproduce list\n"
      "  remcaps reproduce mnist --seeds 42..46 --budget 600 --device cuda");
  command->callback([options] { run_reproduce(*options); });
}

}  // namespace remcaps::cli
