#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/distributed.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/text.h"
#include "remcaps/data/augment.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/runs/load.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/launch.h"
#include "remcaps/training/sweep.h"

namespace remcaps::cli {
namespace {

// What was found in a folder of the user's own pictures, and what will be done with it.
void print_pictures(const DatasetOptions& options, const DataSplits& data) {
  const std::string changes = training_changes(options.augment);
  say("{}: {} training, {} validation, {} test pictures of {} classes as {}; training "
      "changes them by {} (see dataset.image_size, dataset.augment)",
      options.folder, with_commas(data.train.size()), with_commas(data.validation.size()),
      with_commas(data.test.size()), data.class_names.size(),
      shape_text(augmented_shape(options.augment, data.train.images.sizes().slice(1).vec())),
      changes.empty() ? "nothing" : changes);
}

// Rank 0 finds out whose turn it is, and the others do what it says.
void train_once(const std::filesystem::path& parent, const Recipe& recipe, ProcessGroup* group,
                const std::function<void(PlannedRun&)>& train) {
  const std::string kSkip = "skip", kBegin = "begin";
  PlannedRun run = find_run(parent, recipe.name, recipe.train.seed, trained_otherwise(recipe));
  if (!writes(group)) {
    const std::string order = group->broadcast_text("");
    if (order == kSkip) return;
    run.state = order == kBegin ? PlannedRun::State::kMissing : PlannedRun::State::kInterrupted;
    if (order != kBegin) run.folder = order;
    return train(run);
  }
  print_notes(notes_on_passed_over(run));
  const Turn turn = take_turn(run, [&](PlannedRun& mine) {
    const bool resumes = mine.state == PlannedRun::State::kInterrupted;
    if (group != nullptr)
      group->broadcast_text(resumes ? std::filesystem::absolute(mine.folder).string() : kBegin);
    train(mine);
  });
  if (turn == Turn::kTrained) return;
  if (group != nullptr) group->broadcast_text(kSkip);
  say("{}, seed {}: skipped: {}", run.recipe, run.seed,
      turn == Turn::kInTraining ? "another process is training it" : "it is finished");
}

struct TrainCommand {
  std::string recipe, folder, seeds, out;
  std::vector<std::string> overrides;
  int64_t seed = -1, epochs = -1;
  double minutes = -1;
  bool json = false, once = false;
  PlaceOptions place;
  DistributedOptions distributed;

  std::vector<int64_t> wanted_seeds(const Recipe& loaded) const {
    if (!seeds.empty()) return parse_seeds(seeds);
    return {loaded.train.seed};
  }

  std::vector<std::string> all_overrides() const {
    std::vector<std::string> all = overrides;
    if (seed >= 0) all.push_back(fmt::format("train.seed={}", seed));
    if (epochs >= 0) all.push_back(fmt::format("train.epochs={}", epochs));
    if (minutes >= 0) all.push_back(fmt::format("train.minutes={}", minutes));
    return all;
  }

  void run() const {
    distributed.run(place.device,
                    [this](torch::Device device, ProcessGroup* group) { run(device, group); });
  }

  void run(torch::Device device, ProcessGroup* group) const {
    Recipe loaded = load_recipe(recipe, all_overrides());
    use_folder(loaded.dataset, folder);
    const std::vector<int64_t> list = wanted_seeds(loaded);
    const std::filesystem::path root = data_root(place.data);
    const DataSplits data = load_dataset(loaded.dataset, root);
    if (find_dataset(loaded.dataset.name).needs_folder) print_pictures(loaded.dataset, data);
    nlohmann::json runs = nlohmann::json::array();
    for (const int64_t each : list) {
      stop_between_runs();
      loaded.train.seed = each;
      const std::filesystem::path parent =
          out.empty() ? default_runs_folder(loaded) : std::filesystem::path(out);
      std::optional<RunSummary> trained;
      const auto train = [&](const PlannedRun& run) {
        const auto trainer =
            run.state == PlannedRun::State::kInterrupted
                ? std::make_unique<Trainer>(read_run_recipe(RunFolder::open(run.folder)), data,
                                            RunFolder::open(run.folder), device, group)
                : start_run(loaded, data, parent, root, device, group);
        say("{}: {} on {}, seed {}, {}: {}", loaded.name, loaded.model, loaded.dataset.name, each,
            group == nullptr ? device.str()
                             : fmt::format("{} processes on {}", group->size(), device.str()),
            trainer->folder().path().string());
        trained = trainer->run();
      };
      if (once)
        train_once(parent, loaded, group, train);
      else
        train({});
      if (!trained || !writes(group)) continue;
      const RunSummary& summary = *trained;
      if (json)
        runs.push_back(to_json(summary));
      else
        fmt::print("{}", to_text(summary));
      std::fflush(stdout);
    }
    if (json && writes(group)) fmt::print("{}\n", json_text({{"runs", runs}}));
  }
};

struct ResumeCommand {
  std::string folder;
  int64_t epochs = -1;
  double minutes = -1;
  bool json = false;
  PlaceOptions place;
  DistributedOptions distributed;

  void run() const {
    distributed.run(place.device,
                    [this](torch::Device device, ProcessGroup* group) { run(device, group); });
  }

  void run(torch::Device device, ProcessGroup* group) const {
    const RunFolder run = RunFolder::open(folder);
    Recipe recipe = read_run_recipe(run);
    if (epochs >= 0) recipe.train.epochs = epochs;
    if (minutes >= 0) recipe.train.minutes = minutes;
    const DataSplits data = load_dataset(recipe.dataset, run_data_root(run, place.data));
    const RunSummary summary = Trainer(recipe, data, run, device, group).run();
    if (!writes(group)) return;
    if (json)
      fmt::print("{}\n", json_text(to_json(summary)));
    else
      fmt::print("{}", to_text(summary));
  }
};

}  // namespace

void add_train(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Train a network from a recipe");
  auto options = std::make_shared<TrainCommand>();
  command
      ->add_option("recipe", options->recipe,
                   "A recipe's name (fashion-mnist/eff-capsnet) or its file")
      ->required();
  command->add_option("--folder", options->folder, kFolderHelp);
  auto* seed = command->add_option("--seed", options->seed, "Seed of weights, order, augmentation")
                   ->check(at_least(0));
  command->add_option("--seeds", options->seeds, "Several runs, one after another: 42..46 or 42,45")
      ->excludes(seed);
  command->add_option("--epochs", options->epochs, "Limit; short for --set train.epochs=N")
      ->check(at_least(0));
  command->add_option("--minutes", options->minutes, "Limit; short for --set train.minutes=M")
      ->check(at_least(0));
  command
      ->add_option("--set", options->overrides,
                   "Change a key of the recipe, repeatable: train.lr=0.002")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag(
      "--once", options->once,
      "Go on with the same run of this seed if it was stopped; skip it if it is finished "
      "or another process trains it");
  command->add_option(
      "--out", options->out,
      "Folder for the runs (default: runs/<data set>/<recipe>); each is in seed-<n> "
      "there, never over an existing one");
  options->place.add_to(*command);
  options->distributed.add_to(*command);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer(
      "Example:\n"
      "  remcaps train fashion-mnist/eff-capsnet --seeds 42..46 --epochs 20\n"
      "  remcaps train folder/eff-capsnet --folder ~/pictures\n"
      "  torchrun --no_python --nproc_per_node 4 remcaps train fashion-mnist/eff-capsnet\n\n"
      "Ctrl-C finishes the step, saves and tells how to go on (exit code 130).");
  command->callback([options] { options->run(); });
}

void add_resume(CLI::App& app) {
  auto* command =
      app.add_subcommand("resume", "Go on with a run that was interrupted or killed, exactly");
  auto options = std::make_shared<ResumeCommand>();
  command->add_option("run", options->folder, "The run's folder")->required();
  command->add_option("--epochs", options->epochs, "A new limit; 0: none")->check(at_least(0));
  command->add_option("--minutes", options->minutes, "A new limit, earlier time counted; 0: none")
      ->check(at_least(0));
  options->place.add_to(*command);
  options->distributed.add_to(*command);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer("Example:\n  remcaps resume runs/fashion-mnist/eff-capsnet/seed-42");
  command->callback([options] { options->run(); });
}

}  // namespace remcaps::cli
