#include "remcaps/report/measured_trees.h"

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/report/run_results.h"

namespace remcaps {

namespace {

MeasuredTrees measure(const ShownRun& run, bool parts) {
  const ParseTreeReport report = run.trees(run.quantizers, "parse trees of " + run.label, parts);
  const LayerTrees& last = report.last();
  MeasuredTrees trees;
  trees.label = run.label;
  trees.recipe = run.run.recipe.name;
  trees.dataset = run.run.recipe.dataset.name;
  trees.data_line = run.data_line();
  for (int64_t j = 0; j < run.classes(); ++j) trees.class_names.push_back(run.class_name(j));
  const YAML::Node strategy = run.run.recipe.pruning["strategy"];
  trees.strategy = strategy ? strategy.as<std::string>() : "none";
  const Sparsity sparsity = measure_sparsity(*run.run.model);
  trees.sparsity = sparsity.published();
  trees.parameters_left = static_cast<double>(sparsity.nonzero);
  const DeadStructures dead = count_dead_structures(*run.run.model);
  if (dead.capsules > 0)
    trees.capsules_left = static_cast<double>(dead.capsules - dead.dead_capsules);
  if (report.parts) trees.effective_parts = report.parts->half;
  trees.accuracy_quantized = report.accuracy_quantized;
  trees.entropy = last.entropy;
  trees.median_keys = last.median_keys;
  trees.entropy_per_class = last.entropy_per_class;
  trees.keys_per_class = last.keys_per_class;
  trees.samples_per_class = report.samples_per_class;
  return trees;
}

// Class names are not in a summary: those of the data set, or numbers.
std::vector<std::string> class_names_of(const std::string& dataset, size_t classes) {
  std::vector<std::string> names = find_dataset(dataset).class_names;
  if (names.size() == classes) return names;
  names.clear();
  for (size_t j = 0; j < classes; ++j) names.push_back(std::to_string(j));
  return names;
}

MeasuredTrees read(const RunResult& run, const std::string& split) {
  try {
    const nlohmann::json& numbers = run.split(split);
    MeasuredTrees trees;
    trees.accuracy_quantized = numbers.at("accuracy_quantized");
    trees.entropy = numbers.at("entropy");
    trees.median_keys = numbers.at("median_keys");
    trees.entropy_per_class = numbers.at("entropy_per_class").get<std::vector<double>>();
    trees.keys_per_class = numbers.at("keys_per_class").get<std::vector<int64_t>>();
    trees.samples_per_class = numbers.at("samples_per_class").get<std::vector<int64_t>>();
    trees.sparsity = run.summary.at("sparsity");
    trees.strategy = run.summary.at("options").value("pruning.strategy", "none");
    trees.recipe = run.recipe;
    const std::string dataset = trees.dataset = run.summary.at("dataset");
    const auto optional = [](const nlohmann::json& object, const char* key) {
      return object.contains(key) ? std::optional<double>(object.at(key)) : std::nullopt;
    };
    trees.parameters_left = optional(run.summary, "parameters_nonzero");
    trees.capsules_left = optional(run.summary, "capsules_left");
    if (numbers.contains("effective_parts"))
      trees.effective_parts = optional(numbers.at("effective_parts"), "half");
    trees.class_names = class_names_of(dataset, trees.keys_per_class.size());
    const std::string note = run.summary.value("data_note", "");
    trees.data_line = fmt::format("{}, {} {} images{}", dataset,
                                  with_commas(numbers.at("samples").get<int64_t>()), split,
                                  note.empty() ? "" : fmt::format(" ({})", note));
    const size_t classes = trees.keys_per_class.size();
    check(classes > 0 && trees.entropy_per_class.size() == classes &&
              trees.samples_per_class.size() == classes,
          "{}: {} classes have keys, {} an entropy, {} samples", run.place.string(), classes,
          trees.entropy_per_class.size(), trees.samples_per_class.size());
    return trees;
  } catch (const nlohmann::json::exception&) {
    fail("{}: has no parse trees of the {} images", run.place.string(), split);
  }
}

}  // namespace

bool is_summary_file(const std::string& run) {
  return run.ends_with(".json");
}

std::vector<MeasuredTrees> measured_trees(const RunSelection& selection, bool parts) {
  const auto summaries =
      std::count_if(selection.runs.begin(), selection.runs.end(), is_summary_file);
  std::vector<MeasuredTrees> all;
  if (summaries == 0) {
    for (const ShownRun& run : load_shown_runs(selection)) all.push_back(measure(run, parts));
    return all;
  }
  check(summaries == static_cast<int64_t>(selection.runs.size()),
        "{} of {} runs are summaries; a figure takes summaries or networks, not both", summaries,
        selection.runs.size());
  check(selection.limit == 0, "--limit {}: the numbers of a summary are those of all images",
        selection.limit);
  std::vector<RunName> names;
  for (const std::string& file : selection.runs) {
    const RunResult run = read_result(file);
    all.push_back(read(run, selection.split));
    names.push_back({file, run.recipe, run.seed});
  }
  const std::vector<std::string> labels = run_labels(names);
  for (size_t i = 0; i < all.size(); ++i) all[i].label = labels[i];
  return all;
}

}  // namespace remcaps
