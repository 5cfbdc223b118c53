#include "remcaps/report/figure_input.h"

#include <map>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/explain/backtrack.h"

namespace remcaps {
namespace fs = std::filesystem;

std::vector<std::string> distinct_labels(const std::vector<RunName>& names) {
  std::vector<std::string> labels;
  for (const RunName& name : names) labels.push_back(name.recipe);
  const auto distinct = [&labels] {
    return std::set<std::string>(labels.begin(), labels.end()).size() == labels.size();
  };
  if (distinct()) return labels;
  for (size_t i = 0; i < names.size(); ++i) labels[i] += fmt::format(" seed {}", names[i].seed);
  if (distinct()) return labels;
  for (size_t i = 0; i < names.size(); ++i)
    labels[i] += fmt::format(" epoch {}", names[i].epoch + 1);
  if (distinct()) return labels;
  for (size_t i = 0; i < names.size(); ++i) labels[i] = names[i].argument;
  return labels;
}

RunArgument parse_run_argument(const std::string& argument) {
  std::error_code ignored;
  const size_t at = argument.rfind('@');
  if (at == std::string::npos || fs::exists(argument, ignored)) return {argument, ""};
  return {argument.substr(0, at), argument.substr(at + 1)};
}

std::string FigureRun::class_name(int64_t class_index) const {
  return run.class_name(class_index);
}

BatchSource FigureRun::source() const {
  return BatchSource(part, run.recipe.dataset.augment, run.device);
}

void FigureRun::pass(const std::string& what,
                     const std::function<void(const Batch&, const Forward&)>& on_batch) const {
  Progress progress(what, part.size());
  EvaluateOptions options = run.evaluation();
  options.forward.trace = true;
  options.forward.quantizers = quantizers;
  options.on_batch = on_batch;
  options.on_progress = [&](int64_t done) { progress.update(done); };
  evaluate(*run.model, source(), options);
  progress.finish();
}

ParseTreeReport FigureRun::trees(const Quantizers& with, const std::string& what) const {
  Progress progress(what, part.size());
  EvaluateOptions options = run.evaluation();
  options.on_progress = [&](int64_t done) { progress.update(done); };
  ParseTreeReport report = measure_parse_trees(*run.model, source(), with, options);
  progress.finish();
  return report;
}

Batch FigureRun::batch(const std::vector<int64_t>& places) const {
  const Dataset chosen = part.select(torch::tensor(places, torch::kLong));
  return BatchSource(chosen, run.recipe.dataset.augment, run.device)
      .evaluation_batch(0, chosen.size());
}

Forward FigureRun::forward(const Batch& batch, bool quantized) const {
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  if (quantized) options.quantizers = quantizers;
  return run.model->forward(batch.images, options);
}

Picture FigureRun::picture(const Tensor& normalised) const {
  return to_picture(normalised, run.context.mean, run.context.std);
}

std::vector<FigureRun> load_figure_runs(const FigureOptions& options) {
  std::vector<FigureRun> runs;
  std::map<std::string, std::shared_ptr<const DataSplits>> loaded;
  for (const std::string& argument : options.runs) {
    const RunArgument which = parse_run_argument(argument);
    FigureRun run;
    run.run = load_run(which.path, options.device, which.checkpoint);
    const std::string key = fmt::format("{}\n{}", run.run.data_root.string(),
                                        YAML::Dump(run.run.recipe.to_yaml()["dataset"]));
    std::shared_ptr<const DataSplits>& data = loaded[key];
    if (!data) data = std::make_shared<const DataSplits>(run.run.load_data(options.data));
    run.data = data;
    run.part = data->split(options.split);
    if (options.limit > 0 && options.limit < run.part.size())
      run.part = run.part.select(torch::arange(options.limit));
    run.quantizers = run.run.recipe.quantize.quantizers(run.run.model->routing_layers().size());
    runs.push_back(std::move(run));
  }
  std::vector<RunName> names;
  for (size_t i = 0; i < runs.size(); ++i) {
    const LoadedRun& run = runs[i].run;
    names.push_back({options.runs[i], run.recipe.name, run.recipe.train.seed, run.epoch});
  }
  const std::vector<std::string> labels = distinct_labels(names);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].label = labels[i];
  return runs;
}

FigureRun load_one_run(const FigureOptions& options, const std::string& figure) {
  if (options.runs.size() != 1)
    throw UsageError(
        fmt::format("figure {}: {} runs given; it shows one", figure, options.runs.size()));
  return std::move(load_figure_runs(options).front());
}

void check_same_classes(const std::vector<FigureRun>& runs) {
  for (const FigureRun& run : runs)
    check(
        run.run.class_names == runs[0].run.class_names,
        "{} ({}, {} classes) and {} ({}, {} classes) do not have the same classes: they cannot be "
        "compared class by class",
        runs[0].label, runs[0].run.recipe.dataset.name, runs[0].classes(), run.label,
        run.run.recipe.dataset.name, run.classes());
}

std::vector<int64_t> shown_images(const FigureOptions& options, const FigureRun& run, size_t most) {
  std::vector<int64_t> places;
  for (const NumberRange& range : options.images) {
    check(range.last < run.part.size(), "image {}; the {} split has 0 to {}", range.last,
          options.split, run.part.size() - 1);
    for (int64_t place = range.first; place <= range.last; ++place) places.push_back(place);
  }
  check(options.images.empty() || places.size() <= most, "{} images; this figure shows at most {}",
        places.size(), most);
  if (places.empty()) {
    for (int64_t j = 0; j < run.classes(); ++j) {
      const Tensor found = run.part.labels.eq(j).nonzero();
      if (found.size(0) > 0) places.push_back(found[0][0].item<int64_t>());
    }
  }
  if (places.size() > most) places.resize(most);
  check(!places.empty(), "the {} split has no images to show", options.split);
  return places;
}

std::string data_line(const FigureOptions& options, const FigureRun& run) {
  return fmt::format("{}, {} {} images", run.run.recipe.dataset.name, with_commas(run.part.size()),
                     options.split);
}

}  // namespace remcaps
