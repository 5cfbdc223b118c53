#include "remcaps/report/model_export.h"

#include <fmt/format.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/data/catalog.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/training/parse_trees.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json measure(const LoadedRun& run, const BatchSource& test,
             const std::function<void(int64_t)>& on_progress) {
  EvaluateOptions options;
  options.margin = run.recipe.loss.margin(run.epoch);
  options.on_progress = on_progress;
  const SplitMeasurement measured = measure_split(
      *run.model, test, run.recipe.quantize.quantizers(run.model->routing_layers().size()), options,
      /*scores=*/false);
  check(std::isfinite(measured.plain.loss), "{}: the loss on test is not finite",
        run.weights.string());
  const Sparsity sparsity = measure_sparsity(*run.model);
  json numbers = {{"model", run.recipe.model},
                  {"dataset", run.recipe.dataset.name},
                  {"recipe", run.recipe.name},
                  {"seed", run.recipe.train.seed},
                  {"epoch", run.epoch},
                  {"split", "test"},
                  {"samples", measured.plain.samples},
                  {"accuracy", measured.plain.accuracy},
                  {"loss", measured.plain.loss},
                  {"parameters", sparsity.parameters},
                  {"parameters_nonzero", sparsity.nonzero},
                  {"sparsity", sparsity.published()}};
  if (measured.trees) add_parse_trees(numbers, *measured.trees);
  return numbers;
}

// "mnist/dr-capsnet-rem" of ".../models/mnist/dr-capsnet-rem.safetensors".
std::string name_of_export(const fs::path& file) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  return (whole.parent_path().filename() / whole.stem()).generic_string();
}

std::string card_text(const std::string& name, const json& numbers, uintmax_t bytes) {
  const CatalogEntry& data = catalog_entry(numbers["dataset"]);
  std::string text = fmt::format("# {}\n\n| | |\n|---|---|\n", name);
  const auto row = [&text](const std::string& what, const std::string& value) {
    text += fmt::format("| {} | {} |\n", what, value);
  };
  row("network", numbers["model"]);
  row("data", data.title + (data.terms.empty() ? "" : " (" + data.terms + ")"));
  row("recipe",
      fmt::format("`{}`, seed {}, weights of epoch {}", numbers["recipe"].get<std::string>(),
                  numbers["seed"].get<int64_t>(), numbers["epoch"].get<int64_t>() + 1));
  row("test accuracy", fmt::format("{:.2f} % of {} images", 100 * numbers["accuracy"].get<double>(),
                                   with_commas(numbers["samples"])));
  if (numbers.contains("accuracy_quantized")) {
    row("with quantized couplings",
        fmt::format("{:.2f} %, K = {}", 100 * numbers["accuracy_quantized"].get<double>(),
                    fmt::join(numbers["levels"].get<std::vector<int64_t>>(), ", ")));
    row("parse trees",
        fmt::format("{:.2f} bits, {:g} trees a class in the median",
                    numbers["entropy"].get<double>(), numbers["median_keys"].get<double>()));
  }
  row("parameters",
      fmt::format("{}, {} not zero, sparsity {:.2f} %", with_commas(numbers["parameters"]),
                  with_commas(numbers["parameters_nonzero"]),
                  100 * numbers["sparsity"].get<double>()));
  row("file", human_bytes(static_cast<double>(bytes)) +
                  ", half precision; pruned tensors as a bitmap and what is left");
  row("made with", fmt::format("remcaps {}", kVersion));
  return text +
         fmt::format(
             "\nThe numbers are those of this file: `remcaps eval zoo:{}` gives them again.\n",
             name);
}

}  // namespace

ModelExport export_model(LoadedRun& run, const DataSplits& data, const fs::path& out,
                         const std::function<void(int64_t)>& on_progress) {
  const PackedTensors packed = pack_tensors(weights_of(*run.model));
  const WeightsInfo info{run.recipe, run.context, run.class_names, run.epoch};
  // What is measured is what will be read, not the weights before they were packed.
  load_weights(*run.model, unpack_tensors(packed, run.weights.string()), run.weights.string());

  ModelExport result;
  result.numbers = measure(run, run.source(data, "test"), on_progress);
  result.weights = out;
  result.card = fs::path(out).replace_extension(".md");
  if (out.has_parent_path()) make_folder(out.parent_path());
  save_packed_weights(out, packed, info, result.numbers.dump());
  write_atomically(result.card, card_text(name_of_export(out), result.numbers, fs::file_size(out)));
  return result;
}

}  // namespace remcaps
