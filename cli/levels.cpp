#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "remcaps/base/json.h"

namespace remcaps::cli {
namespace {

struct LevelsCommand {
  RunOptions run{"validation"};
  std::vector<int64_t> candidates;
  double tolerance = 0;
};

nlohmann::json to_json(const LevelChoice& choice, const LoadedRun& run, const std::string& split) {
  nlohmann::json json = {{"model", run.recipe.model},
                         {"dataset", run.recipe.dataset.name},
                         {"split", split},
                         {"weights", run.weights.string()},
                         {"accuracy", choice.accuracy},
                         {"levels", choice.levels()},
                         {"curves", nlohmann::json::array()}};
  for (const LevelCurve& curve : choice.curves) {
    nlohmann::json points = nlohmann::json::array();
    for (const LevelPoint& point : curve.points)
      points.push_back({{"levels", point.levels},
                        {"accuracy", point.accuracy},
                        {"entropy", point.entropy},
                        {"median_keys", point.keys}});
    json["curves"].push_back(
        {{"layer", curve.layer}, {"chosen", curve.chosen}, {"points", std::move(points)}});
  }
  return json;
}

void print_text(const LevelChoice& choice, const std::string& split) {
  fmt::print("accuracy on {} without quantization: {:.2f} %\n", split, choice.accuracy * 100);
  for (const LevelCurve& curve : choice.curves) {
    fmt::print("\n{}\n{:>5} {:>10} {:>9} {:>9}\n", curve.layer, "K", "accuracy", "entropy", "keys");
    for (const LevelPoint& point : curve.points)
      fmt::print("{:>5} {:>8.2f} % {:>9.4f} {:>9g}{}\n", point.levels, point.accuracy * 100,
                 point.entropy, point.keys, point.levels == curve.chosen ? "  <- chosen" : "");
    if (curve.chosen == 0) fmt::print("no K keeps the accuracy: the layer is left alone\n");
  }
  fmt::print("\nquantize: {{levels: [{}]}}\n", fmt::join(choice.levels(), ", "));
}

void run_levels(const LevelsCommand& command, const LoadedRun& run, ProcessGroup* group) {
  run.model->require_routing();
  const DataSplits data = run.load_data(command.run.place.data);
  const BatchSource source = run.source(data, command.run.split);
  LevelOptions options;
  options.candidates = command.candidates;
  options.tolerance = command.tolerance / 100;
  const LevelChoice choice =
      choose_with_progress(run, source, options, command.run.evaluation(run, group));
  if (!writes(group)) return;
  if (command.run.json)
    fmt::print("{}\n", json_text(to_json(choice, run, command.run.split)));
  else
    print_text(choice, command.run.split);
}

}  // namespace

void add_levels(CLI::App& app) {
  auto* command = app.add_subcommand(
      "levels",
      "Find the lowest K per routing layer that accuracy does not notice; the whole curve");
  auto options = std::make_shared<LevelsCommand>();
  options->run.add_to(*command);
  command->add_option("--candidates", options->candidates, "K's to try (default: 2 to 21)")
      ->delimiter(',')
      ->check(between(2, 256));
  command
      ->add_option("--tolerance", options->tolerance,
                   "Percentage points of accuracy that a K may cost")
      ->capture_default_str()
      ->check(between(0, 100));
  command->footer(
      "Example:\n  remcaps levels runs/mnist/dr-capsnet/seed-42 --candidates 2,3,5,6,11,21");
  command->callback([options] {
    options->run.with_run(
        [&](const LoadedRun& run, ProcessGroup* group) { run_levels(*options, run, group); });
  });
}

}  // namespace remcaps::cli
