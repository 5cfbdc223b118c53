#include "remcaps/training/checkpoint.h"

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/names.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/ops/batch.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kWeightsFormat = "remcaps-weights-1";
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

const std::string& metadata_value(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  check(found != file.metadata().end(), "{}: its metadata has no \"{}\"", file.path().string(),
        key);
  return found->second;
}

json parse_json(const SafetensorsFile& file, const std::string& key) {
  try {
    return json::parse(metadata_value(file, key));
  } catch (const json::exception&) {
    fail("{}: its metadata \"{}\" is not valid JSON", file.path().string(), key);
  }
}

void check_format(const SafetensorsFile& file, const char* expected) {
  const auto found = file.metadata().find("format");
  const std::string format = found == file.metadata().end() ? "none" : found->second;
  check(format == expected, "{}: its format is {}; expected {}", file.path().string(), format,
        expected);
}

Metadata metadata_of(const WeightsInfo& info) {
  const ImageShape input = info.context.input;
  return {
      {"format", kWeightsFormat},
      {"remcaps", kVersion},
      {"model", info.recipe.model},
      {"dataset", info.recipe.dataset.name},
      {"name", info.recipe.name},
      {"recipe", info.recipe.to_text()},
      {"input", json_text({input.channels, input.height, input.width})},
      {"classes", json_text(info.class_names)},
      {"epoch", std::to_string(info.epoch)},
  };
}

}  // namespace

TensorMap weights_of(const CapsNet& model) {
  TensorMap tensors;
  for (const auto& item : model.named_parameters()) tensors[item.key()] = item.value().detach();
  for (const auto& item : model.named_buffers()) tensors[item.key()] = item.value().detach();
  return tensors;
}

void load_weights(CapsNet& model, const TensorMap& tensors, const std::string& source) {
  torch::NoGradGuard no_grad;
  TensorMap wanted = weights_of(model);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : wanted) names.push_back(name);
  for (const auto& [name, tensor] : tensors)
    check(wanted.count(name) != 0, "{}: {} is no tensor of {}{}", source, name, model.name(),
          suggestion(name, names));
  // Everything is checked before anything is copied: a bad file leaves the network as it was.
  for (auto& [name, target] : wanted) {
    const auto found = tensors.find(name);
    check(found != tensors.end(), "{}: tensor {} of {} is missing", source, name, model.name());
    check(found->second.sizes() == target.sizes(), "{}: {} has shape {}; {} expects {}", source,
          name, shape_text(found->second.sizes()), model.name(), shape_text(target.sizes()));
    check(found->second.scalar_type() == target.scalar_type(),
          "{}: {} is of type {}; {} expects {}", source, name,
          c10::toString(found->second.scalar_type()), model.name(),
          c10::toString(target.scalar_type()));
    if (!found->second.is_floating_point()) continue;
    const int64_t bad = torch::isfinite(found->second).logical_not().sum().item<int64_t>();
    check(bad == 0, "{}: {} of the {} values of {} are not finite", source, bad,
          found->second.numel(), name);
  }
  for (auto& [name, target] : wanted) target.copy_(tensors.at(name));
}

void save_weights(const fs::path& path, const CapsNet& model, const WeightsInfo& info) {
  save_safetensors(path, weights_of(model), metadata_of(info));
}

void save_packed_weights(const fs::path& path, const PackedTensors& weights,
                         const WeightsInfo& info, const std::string& card) {
  Metadata metadata = metadata_of(info);
  metadata.insert(weights.metadata.begin(), weights.metadata.end());
  metadata["card"] = card;
  save_safetensors(path, weights.tensors, metadata);
}

WeightsInfo read_weights_info(const SafetensorsFile& file) {
  check_format(file, kWeightsFormat);
  WeightsInfo info;
  YAML::Node recipe;
  try {
    recipe = YAML::Load(metadata_value(file, "recipe"));
  } catch (const YAML::Exception& error) {
    fail("{}: the recipe in its metadata is not valid YAML: {}", file.path().string(), error.msg);
  }
  info.recipe = parse_recipe(recipe, metadata_value(file, "name"));
  try {
    const auto input = parse_json(file, "input").get<std::vector<int64_t>>();
    check(input.size() == 3, "{}: input {} in its metadata; expected [channels, height, width]",
          file.path().string(), shape_text(input));
    info.context.input = {input[0], input[1], input[2]};
    info.class_names = parse_json(file, "classes").get<std::vector<std::string>>();
    info.epoch = std::stoll(metadata_value(file, "epoch"));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail("{}: its metadata is damaged: {}", file.path().string(), error.what());
  }
  info.context.classes = static_cast<int64_t>(info.class_names.size());
  info.context.mean = info.recipe.dataset.augment.mean;
  info.context.std = info.recipe.dataset.augment.std;
  return info;
}

EpochSums EpochSums::zeros(torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  EpochSums sums;
  sums.loss = torch::zeros({}, options.dtype(torch::kFloat64));
  sums.correct = torch::zeros({}, options.dtype(torch::kInt64));
  sums.bad_step = torch::full({}, kNoBadStep, options.dtype(torch::kInt64));
  return sums;
}

void EpochSums::add(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                    const torch::Tensor& labels, int64_t position) {
  add_on_device(batch_loss, activations, labels, torch::full({1}, position, bad_step.options()));
  images += labels.size(0);
}

void EpochSums::add_on_device(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                              const torch::Tensor& labels, const torch::Tensor& position) {
  torch::NoGradGuard no_grad;
  if (has_fused_sums(batch_loss, activations))
    return add_to_fused_sums(batch_loss, activations, labels, position, loss, correct, bad_step);
  const torch::Tensor value = batch_loss.to(torch::kFloat64);
  loss += value * labels.size(0);
  correct += (activations.argmax(1) == labels).sum();
  bad_step.copy_(torch::where(torch::isfinite(value), bad_step,
                              torch::minimum(bad_step, position.squeeze(0))));
}

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
  const json values = parse_json(file, "progress");
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
