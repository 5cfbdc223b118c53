#include "remcaps/runs/summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/torch/compat.h"

namespace remcaps {

namespace {

nlohmann::json to_json(const SplitMeasurement& measurement) {
  nlohmann::json json = {{"samples", measurement.plain.samples},
                         {"accuracy", measurement.plain.accuracy},
                         {"loss", measurement.plain.loss}};
  if (measurement.trees) add_parse_trees(json, *measurement.trees);
  return json;
}

}  // namespace

nlohmann::json to_json(const RunSummary& summary) {
  nlohmann::json json = {
      {"run", summary.folder},
      {"recipe", summary.recipe},
      {"model", summary.model},
      {"dataset", summary.dataset},
      {"seed", summary.seed},
      {"device", summary.device},
      {"machine", summary.machine},
      {"stopped", summary.stopped},
      {"checkpoint", summary.checkpoint},
      {"checkpoint_epoch", summary.checkpoint_epoch},
      {"epochs", summary.epochs},
      {"steps", summary.steps},
      {"best_validation_loss", summary.best_validation_loss},
      {"parameters", summary.parameters},
      {"parameters_nonzero", summary.parameters_nonzero},
      {"sparsity", summary.sparsity},
      {"seconds", summary.seconds},
      {"remcaps", kVersion},
      {"commit", kCommit},
      {"torch", TORCH_VERSION},
      {"options", summary.options},
  };
  if (summary.capsules > 0) {
    json["capsules"] = summary.capsules;
    json["capsules_left"] = summary.capsules_left;
  }
  if (!summary.data_note.empty()) json["data_note"] = summary.data_note;
  if (summary.test.plain.samples > 0) {
    json["split"] = "test";
    json.update(to_json(summary.test));
  }
  for (const auto& [name, measurement] : summary.extra) json["splits"][name] = to_json(measurement);
  return json;
}

std::string to_text(const RunSummary& summary) {
  std::string text = fmt::format(
      "{} on {}, seed {}: {} epoch(s) in {}, stopped by {}; {} checkpoint of epoch {}\n",
      summary.model, summary.dataset, summary.seed, summary.epochs, human_seconds(summary.seconds),
      summary.stopped, summary.checkpoint, summary.checkpoint_epoch + 1);
  if (summary.test.plain.samples > 0)
    text += fmt::format("test accuracy {:.2f} %  loss {:.5f}  ", summary.test.plain.accuracy * 100,
                        summary.test.plain.loss);
  if (summary.test.trees)
    text += fmt::format("quantized {:.2f} %  entropy {:.2f} bits  ",
                        summary.test.trees->accuracy_quantized * 100,
                        summary.test.trees->last().entropy);
  text += fmt::format("parameters {}", with_commas(summary.parameters));
  if (summary.sparsity > 0)
    text += fmt::format("  left {}  sparsity {:.2f} %", with_commas(summary.parameters_nonzero),
                        summary.sparsity * 100);
  text += fmt::format("  run {}\n", summary.folder);
  if (!summary.data_note.empty()) text += fmt::format("note: {}\n", summary.data_note);
  return text;
}

}  // namespace remcaps
