#include "remcaps/report/html_report_run.h"

#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/explain/statistics.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/report/html_report_couplings.h"

namespace remcaps {

namespace {

constexpr int64_t kHistogramBins = 50;
constexpr int64_t kMostTrees = 8;      // shown of each class
constexpr int64_t kImagesOfATree = 7;  // shown beside their mean

// Rows of a batch that hold images of the explorer: int64, ascending.
Tensor explorer_rows(const Batch& batch, const std::vector<int64_t>& places) {
  const Tensor indices = batch.indices.cpu();
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < indices.size(0); ++b)
    if (std::binary_search(places.begin(), places.end(), indices[b].item<int64_t>()))
      rows.push_back(b);
  return torch::tensor(rows, torch::kLong);
}

nlohmann::json field_of(const std::optional<ReceptiveField>& field) {
  if (!field) return nullptr;
  const auto axis = [](const ReceptiveField::Axis& of) {
    return nlohmann::json{{"first", of.first}, {"step", of.step}, {"size", of.size}};
  };
  return {{"y", axis(field->y)}, {"x", axis(field->x)}};
}

nlohmann::json grids_of(const RoutingTrace& trace) {
  auto grids = nlohmann::json::array();
  for (const CapsuleGrid& grid : trace.grids)
    grids.push_back({{"offset", grid.offset},
                     {"types", grid.types},
                     {"height", grid.height},
                     {"width", grid.width},
                     {"stride_type", grid.stride_type},
                     {"stride_y", grid.stride_y},
                     {"stride_x", grid.stride_x},
                     {"field", field_of(grid.field)}});
  return grids;
}

// The checkpoint the weights are from. A file of the zoo has the name of its network.
std::string checkpoint_name(const LoadedRun& run) {
  const bool exported = SafetensorsFile(run.weights).metadata().contains("card");
  return exported ? "exported" : run.weights.stem().string();
}

nlohmann::json dictionary_of(const TreeGroups& trees, int64_t classes, int64_t most,
                             ReportImages& images) {
  auto dictionary = nlohmann::json::array();
  const int64_t of_class = most / std::max<int64_t>(1, classes);
  const int64_t limit = std::clamp<int64_t>(of_class / (1 + kImagesOfATree), 1, kMostTrees);
  for (int64_t c = 0; c < classes; ++c) {
    auto listed = nlohmann::json::array();
    for (const auto& group : trees.largest(c, static_cast<size_t>(limit))) {
      std::vector<int64_t> shown;
      for (size_t k = 0; k < group.size() && k < static_cast<size_t>(kImagesOfATree); ++k)
        shown.push_back(images.add_to_gallery(group[k]));
      listed.push_back(
          {{"count", group.size()},
           {"mean", group.size() == 1 ? shown.front() : images.add_mean_to_gallery(group)},
           {"images", shown}});
    }
    dictionary.push_back(std::move(listed));
  }
  return dictionary;
}

}  // namespace

nlohmann::json layers_of(const Forward& forward, const QuantizeOptions& quantize,
                         const Quantizers& quantizers) {
  auto layers = nlohmann::json::array();
  for (size_t l = 0; l < forward.routings.size(); ++l) {
    const RoutingTrace& trace = forward.routings[l];
    const bool conv = trace.convolutional();
    layers.push_back({{"name", trace.layer},
                      {"children", trace.child_activations.size(1)},
                      {"parents", conv ? trace.coupling.size(1) * trace.coupling.size(3)
                                       : trace.coupling.size(2)},
                      {"levels", quantizers[l] ? quantizers[l]->levels() : 0},
                      {"form", quantize.form},
                      {"entropy", nullptr},
                      {"grids", grids_of(trace)}});
  }
  return layers;
}

nlohmann::json measure_run(const ShownRun& shown, ReportImages& images, const RunShare& share,
                           PageBlobs& blobs) {
  const torch::NoGradGuard no_grad;
  const LoadedRun& run = shown.run;
  const Quantizers& quantizers = shown.quantizers;
  const BatchSource source = shown.source();
  TreeCollector collector(*run.model, quantizers);
  TreeGroups trees(shown.class_quantizer(), shown.classes());
  CouplingStatistics couplings(Quantizer::bins(kHistogramBins));
  ExplorerData explorer(quantizers, static_cast<int64_t>(images.places().size()));
  const std::vector<int64_t> map_size = images.shown_size();
  nlohmann::json layers;

  Progress bar(shown.label, source.size());
  EvaluateOptions options = run.evaluation();
  options.on_progress = [&](int64_t done) { bar.update(done); };
  options.second.emplace();
  options.second->trace = true;
  options.second->contributions = true;
  options.second->quantizers = quantizers;
  options.on_second = [&](const Batch& batch, const Forward& forward) {
    collector.add(forward, batch.labels);
    trees.add(forward, batch.indices);
    explorer.add_quantized(forward, explorer_rows(batch, images.places()), map_size,
                           run.model->name(), run.model->input());
    if (layers.is_null()) layers = layers_of(forward, run.recipe.quantize, quantizers);
  };
  options.forward.trace = true;
  options.on_batch = [&](const Batch& batch, const Forward& forward) {
    couplings.add(forward);
    explorer.add_plain(forward, explorer_rows(batch, images.places()));
  };
  const Evaluation plain = evaluate(*run.model, source, options);
  bar.finish();

  const ParseTreeReport report = collector.report();
  for (size_t l = 0; l < report.layers.size(); ++l)
    if (quantizers[l]) layers[l]["entropy"] = report.layers[l].entropy;
  const Sparsity sparsity = measure_sparsity(*run.model);
  const LayerTrees& last = report.last();
  return {{"recipe", run.recipe.name},
          {"model", run.recipe.model},
          {"seed", run.recipe.train.seed},
          {"checkpoint", checkpoint_name(run)},
          {"epoch", run.epoch},
          {"pruning", run.recipe.pruning["strategy"].as<std::string>("none")},
          {"accuracy", plain.accuracy},
          {"accuracy_quantized", report.accuracy_quantized},
          {"loss", plain.loss},
          {"entropy", last.entropy},
          {"entropy_std", last.entropy_std},
          {"entropy_per_class", last.entropy_per_class},
          {"keys_per_class", last.keys_per_class},
          {"median_keys", last.median_keys},
          {"varying_per_class", last.varying_per_class},
          {"key_couplings", last.key_couplings},
          {"effective_parts",
           {{"half", report.parts->half},
            {"spread", report.parts->spread},
            {"half_per_class", report.parts->half_per_class},
            {"capsules", report.parts->capsules}}},
          {"input", {run.model->input().height, run.model->input().width}},
          {"samples_per_class", report.samples_per_class},
          {"parameters", sparsity.parameters},
          {"parameters_nonzero", sparsity.nonzero},
          {"sparsity", sparsity.published()},
          {"confusion", rows_of(plain.confusion)},
          {"dictionary", dictionary_of(trees, shown.classes(), share.gallery_images, images)},
          {"histogram", rows_of(couplings.histogram())},
          {"layers", layers},
          {"explorer", explorer.to_json(blobs, share.explorer_bytes)}};
}

}  // namespace remcaps
