#include "remcaps/training/checkpoint.h"

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/version.h"
#include "remcaps/runs/tensor_file.h"
#include "remcaps/runs/weights.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kStateFormat = "remcaps-state-1";

// Tensors of `from` whose names begin with `prefix`, without it.
TensorMap with_prefix(const TensorMap& from, const std::string& prefix) {
  TensorMap result;
  for (const auto& [name, tensor] : from)
    if (name.rfind(prefix, 0) == 0) result[name.substr(prefix.size())] = tensor;
  return result;
}

void add_with_prefix(TensorMap& to, const std::string& prefix, const TensorMap& from) {
  for (const auto& [name, tensor] : from) to[prefix + name] = tensor;
}

}  // namespace

void save_state(const fs::path& path, const CapsNet& model, const Adam& adam, const Pruner& pruner,
                const RunProgress& progress, const EpochSums& sums) {
  TensorMap tensors;
  add_with_prefix(tensors, "model.", weights_of(model));
  add_with_prefix(tensors, "adam.", adam.state());
  add_with_prefix(tensors, "pruner.", pruner.state());
  tensors["epoch.loss"] = sums.loss;
  tensors["epoch.correct"] = sums.correct;
  json best;  // JSON has no infinity: null before the first epoch is over
  if (progress.best_epoch >= 0) best = progress.best_loss;
  const json values = {{"epoch", progress.epoch},
                       {"position", progress.position},
                       {"step", progress.step},
                       {"best_loss", best},
                       {"best_epoch", progress.best_epoch},
                       {"validation_accuracy", progress.validation_accuracy},
                       {"seconds", progress.seconds},
                       {"adam_steps", adam.steps()},
                       {"images", sums.images}};
  save_safetensors(
      path, tensors,
      {{"format", kStateFormat}, {"remcaps", kVersion}, {"progress", json_text(values)}});
}

RunProgress load_state(const fs::path& path, CapsNet& model, Adam& adam, Pruner& pruner,
                       EpochSums& sums) {
  const SafetensorsFile file(path);
  check_format(file, kStateFormat);
  const TensorMap tensors = file.load_all();
  const json values = metadata_json(file, "progress");
  RunProgress progress;
  int64_t adam_steps = 0;
  try {
    progress.epoch = values.at("epoch");
    progress.position = values.at("position");
    progress.step = values.at("step");
    progress.best_epoch = values.at("best_epoch");
    progress.validation_accuracy = values.at("validation_accuracy");
    if (!values.at("best_loss").is_null()) progress.best_loss = values.at("best_loss");
    progress.seconds = values.at("seconds");
    adam_steps = values.at("adam_steps");
    sums.images = values.at("images");
  } catch (const json::exception&) {
    fail("{}: its metadata \"progress\" lacks a number, or has something else in its place",
         path.string());
  }
  load_weights(model, with_prefix(tensors, "model."), path.string());
  adam.load_state(with_prefix(tensors, "adam."), adam_steps);
  pruner.load_state(with_prefix(tensors, "pruner."));
  for (auto [name, target] :
       {std::pair{"epoch.loss", &sums.loss}, {"epoch.correct", &sums.correct}}) {
    check(tensors.count(name) != 0, "{}: tensor {} is missing", path.string(), name);
    target->copy_(tensors.at(name));
  }
  return progress;
}

}  // namespace remcaps
