#include "remcaps/report/shown_runs.h"

#include <map>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

bool all_differ(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

// Paths without the folders that all of them begin or end with.
std::vector<std::string> distinct_parts(const std::vector<RunName>& names) {
  std::vector<std::vector<fs::path>> parts;
  for (const RunName& name : names) {
    const fs::path normal = fs::path(name.argument).lexically_normal();
    parts.emplace_back(normal.begin(), normal.end());
  }
  const auto shared = [&](auto part_of) {
    return std::all_of(parts.begin(), parts.end(), [&](const auto& own) {
      return own.size() > 1 && part_of(own) == part_of(parts.front());
    });
  };
  while (shared([](const auto& own) { return own.front(); }))
    for (auto& own : parts) own.erase(own.begin());
  while (shared([](const auto& own) { return own.back(); }))
    for (auto& own : parts) own.pop_back();
  std::vector<std::string> texts;
  for (const auto& own : parts) {
    fs::path path;
    for (const fs::path& part : own) path /= part;
    texts.push_back(path.string());
  }
  return texts;
}

// The recipes' names, without the data set if several runs have the same one.
std::vector<std::string> recipe_labels(const std::vector<RunName>& names) {
  const auto folder_of = [](const RunName& name) {
    return name.recipe.substr(0, name.recipe.find_last_of('/') + 1);
  };
  std::set<std::string> folders;
  for (const RunName& name : names) folders.insert(folder_of(name));
  const size_t cut = names.size() > 1 && folders.size() == 1 ? folders.begin()->size() : 0;
  std::vector<std::string> labels;
  for (const RunName& name : names) labels.push_back(name.recipe.substr(cut));
  return labels;
}

// What decides which images a run reads: all that its recipe says of the data set except how
// images are augmented after they were read.
std::string data_key(const LoadedRun& run) {
  YAML::Node section = YAML::Clone(run.recipe.to_yaml()["dataset"]);
  section.remove("augment");
  return fmt::format("{}\n{}", run.data_root.string(), YAML::Dump(section));
}

}  // namespace

std::vector<std::string> run_labels(const std::vector<RunName>& names) {
  const std::vector<std::string> recipes = recipe_labels(names), parts = distinct_parts(names);
  const auto seed = [](const RunName& name) { return fmt::format(", seed {}", name.seed); };
  const auto epoch = [](const RunName& name) { return fmt::format(", epoch {}", name.epoch + 1); };
  std::vector<std::vector<std::string>> attempts(6);
  for (size_t i = 0; i < names.size(); ++i) {
    attempts[0].push_back(recipes[i]);
    attempts[1].push_back(recipes[i] + seed(names[i]));
    attempts[2].push_back(recipes[i] + epoch(names[i]));
    attempts[3].push_back(recipes[i] + seed(names[i]) + epoch(names[i]));
    attempts[4].push_back(fmt::format("{} ({})", recipes[i], parts[i]));
    attempts[5].push_back(fmt::format("{} ({}) {}", recipes[i], parts[i], i + 1));
  }
  return *std::find_if(attempts.begin(), attempts.end(), all_differ);
}

RunArgument parse_run_argument(const std::string& argument) {
  std::error_code ignored;
  const size_t at = argument.rfind('@');
  if (at == std::string::npos || fs::exists(argument, ignored)) return {argument, ""};
  return {argument.substr(0, at), argument.substr(at + 1)};
}

const Quantizer& ShownRun::class_quantizer() const {
  check(!quantizers.empty() && quantizers.back().has_value(),
        "{}: its recipe leaves the class layer's couplings unquantized (quantize.levels: 0)",
        label);
  return *quantizers.back();
}

void ShownRun::pass(const std::string& what,
                    const std::function<void(const Batch&, const Forward&)>& on_batch,
                    bool contributions) const {
  Progress progress(what, part.size());
  EvaluateOptions options = run.evaluation();
  options.forward.trace = true;
  options.forward.contributions = contributions;
  options.forward.quantizers = quantizers;
  options.on_batch = on_batch;
  options.on_progress = [&](int64_t done) { progress.update(done); };
  evaluate(*run.model, source(), options);
  progress.finish();
}

ParseTreeReport ShownRun::trees(const Quantizers& with, const std::string& what, bool parts) const {
  Progress progress(what, part.size());
  EvaluateOptions options = run.evaluation();
  options.forward.contributions = parts;
  options.on_progress = [&](int64_t done) { progress.update(done); };
  ParseTreeReport report = measure_parse_trees(*run.model, source(), with, options);
  progress.finish();
  return report;
}

Batch ShownRun::batch(const std::vector<int64_t>& places) const {
  const Dataset chosen = part.select(torch::tensor(places, torch::kLong));
  return run.source(chosen, split).evaluation_batch(0, chosen.size());
}

Forward ShownRun::forward(const Batch& batch) const {
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  options.contributions = true;
  options.quantizers = quantizers;
  return run.model->forward(batch.images, options);
}

Picture ShownRun::picture(const Tensor& normalised) const {
  return to_picture(normalised, run.context.mean, run.context.std);
}

std::string ShownRun::data_line() const {
  return fmt::format("{}, {} {} images{}", run.recipe.dataset.name, with_commas(part.size()), split,
                     part.note.empty() ? "" : fmt::format(" ({})", part.note));
}

std::vector<ShownRun> load_shown_runs(const RunSelection& selection) {
  std::vector<ShownRun> runs;
  std::vector<RunName> names;
  std::map<std::string, std::shared_ptr<const DataSplits>> loaded;
  for (const std::string& argument : selection.runs) {
    const RunArgument which = parse_run_argument(argument);
    ShownRun run;
    run.argument = argument;
    run.split = selection.split;
    run.run = load_run(which.path, selection.device, which.checkpoint);
    std::shared_ptr<const DataSplits>& data = loaded[data_key(run.run)];
    if (!data) data = std::make_shared<const DataSplits>(run.run.load_data(selection.data));
    run.data = data;
    run.part = data->split(selection.split);
    check(run.part.size() > 0, "{}: the {} split has no images", data->name, selection.split);
    if (selection.limit > 0 && selection.limit < run.part.size())
      run.part = run.part.select(torch::arange(selection.limit));
    run.quantizers = run.run.recipe.quantize.quantizers(run.run.model->routing_layers().size());
    names.push_back({argument, run.run.recipe.name, run.run.recipe.train.seed, run.run.epoch});
    runs.push_back(std::move(run));
  }
  const std::vector<std::string> labels = run_labels(names);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].label = labels[i];
  return runs;
}

void check_same_classes(const std::vector<ShownRun>& runs) {
  for (const ShownRun& run : runs)
    check(
        run.run.class_names == runs[0].run.class_names,
        "{} ({}, {} classes) and {} ({}, {} classes) do not have the same classes: they cannot be "
        "compared class by class",
        runs[0].label, runs[0].run.recipe.dataset.name, runs[0].classes(), run.label,
        run.run.recipe.dataset.name, run.classes());
}

}  // namespace remcaps
