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

// Reads numbers of a state's progress and checks their ranges. A number that lacks is a
// json::exception.
class ProgressReader {
 public:
  ProgressReader(const json& values, const fs::path& path) : values_(values), path_(path) {}

  int64_t count(const char* name, int64_t low = 0, int64_t high = kMost) const {
    const json& value = values_.at(name);
    check(value.is_number_integer() && value >= low && value <= high,
          "{}: its progress \"{}\" is {}; expected a whole number from {} to {}", path_.string(),
          name, json_text(value), low, high);
    return value;
  }
  double number(const char* name, double high = 1e30) const {
    const json& value = values_.at(name);
    check(value.is_number() && value >= 0.0 && value <= high,
          "{}: its progress \"{}\" is {}; expected a number from 0 to {}", path_.string(), name,
          json_text(value), high);
    return value;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 48;
  const json& values_;
  const fs::path& path_;
};

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
  const TensorFile file(path);
  check_format(file, kStateFormat);
  const TensorMap tensors = file.load_all();
  const json values = metadata_json(file, "progress");
  RunProgress progress;
  int64_t adam_steps = 0;
  try {
    const ProgressReader read(values, path);
    progress.epoch = read.count("epoch");
    progress.position = read.count("position");
    progress.step = read.count("step", progress.position);
    progress.best_epoch = read.count("best_epoch", -1, progress.epoch - 1);
    progress.validation_accuracy = read.number("validation_accuracy", 1);
    if (!values.at("best_loss").is_null()) progress.best_loss = read.number("best_loss");
    progress.seconds = read.number("seconds");
    adam_steps = read.count("adam_steps");
    sums.images = read.count("images");
  } catch (const json::exception&) {
    fail("{}: its metadata \"progress\" lacks a number, or has something else in its place",
         path.string());
  }
  load_weights(model, with_prefix(tensors, "model."), path.string());
  try {
    adam.load_state(with_prefix(tensors, "adam."), adam_steps);
    pruner.load_state(with_prefix(tensors, "pruner."));
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
  for (auto [name, target] :
       {std::pair{"epoch.loss", &sums.loss}, {"epoch.correct", &sums.correct}}) {
    check(tensors.count(name) != 0, "{}: tensor {} is missing", path.string(), name);
    check(tensors.at(name).sizes() == target->sizes(), "{}: tensor {} is [{}]; expected one number",
          path.string(), name, fmt::join(tensors.at(name).sizes(), ", "));
    target->copy_(tensors.at(name));
  }
  return progress;
}

}  // namespace remcaps
