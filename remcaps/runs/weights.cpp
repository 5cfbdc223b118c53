#include "remcaps/runs/weights.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/names.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/runs/tensor_file.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr const char* kWeightsFormat = "remcaps-weights-1";

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

template <typename T>
std::vector<T> metadata_list(const SafetensorsFile& file, const std::string& key,
                             const char* expected) {
  const nlohmann::json value = metadata_json(file, key);
  try {
    return value.get<std::vector<T>>();
  } catch (const nlohmann::json::exception&) {
    fail("{}: its metadata \"{}\" is {}; expected {}", file.path().string(), key, json_text(value),
         expected);
  }
}

bool is_extent(int64_t pixels) {
  constexpr int64_t kLargest = 32'768;  // as for pictures
  return pixels >= 1 && pixels <= kLargest;
}

}  // namespace

TensorMap weights_of(const CapsNet& model) {
  TensorMap tensors;
  for (const auto& item : model.named_parameters()) tensors[item.key()] = item.value().detach();
  for (const auto& item : model.named_buffers()) tensors[item.key()] = item.value().detach();
  return tensors;
}

int64_t numbers_in(const TensorMap& tensors) {
  int64_t numbers = 0;
  for (const auto& [name, tensor] : tensors) numbers += tensor.numel();
  return numbers;
}

void load_weights(CapsNet& model, const TensorMap& tensors, const std::string& source) {
  torch::NoGradGuard no_grad;
  TensorMap wanted = weights_of(model);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : wanted) names.push_back(name);
  for (const auto& [name, tensor] : tensors)
    check(wanted.count(name) != 0, "{}: {} is no tensor of {}{}", source, name, model.name(),
          suggestion(name, names));
  // All tensors are checked before any is copied, so that a bad file does not change the network.
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

std::optional<NetworkGraph> inference_graph(const CapsNet& model, const WeightsInfo& info) {
  std::optional<NetworkGraph> graph = model.graph();
  if (!graph) return graph;
  const AugmentOptions& augment = info.recipe.dataset.augment;
  graph->picture.resize = augment.crop > 0 ? augment.resize : 0;  // as LoadedRun::read_input()
  graph->picture.antialias = augment.antialias;
  graph->picture.standardize = augment.standardize;
  graph->picture.mean = augment.mean;
  graph->picture.std = augment.std;
  graph->classes = info.class_names;
  for (const auto& quantizer : info.recipe.quantize.quantizers(model.routing_layers().size()))
    graph->levels.push_back(quantizer ? quantizer->levels() : 0);
  graph->level_form = info.recipe.quantize.form;
  return graph;
}

std::string exported_bytes(const CompressedTensors& weights, const WeightsInfo& info,
                           const std::optional<NetworkGraph>& graph, const std::string& card) {
  Metadata metadata = metadata_of(info);
  metadata.insert(weights.metadata.begin(), weights.metadata.end());
  metadata["card"] = card;
  if (graph) metadata[kGraphMetadata] = graph->to_text();
  return safetensors_bytes(weights.tensors, metadata);
}

void save_compressed_weights(const fs::path& path, const CompressedTensors& weights,
                             const WeightsInfo& info, const std::optional<NetworkGraph>& graph,
                             const std::string& card) {
  write_atomically(path, exported_bytes(weights, info, graph, card));
}

WeightsInfo read_weights_info(const SafetensorsFile& file) {
  check_format(file, kWeightsFormat);
  const auto changes = file.metadata().find(kCompactMetadata);
  check(changes == file.metadata().end(),
        "{}: a network that export has changed ({}): only the runtime reads it (remcaps-run, "
        "remcaps/runtime)",
        file.path().string(), changes == file.metadata().end() ? "" : changes->second);
  WeightsInfo info;
  YAML::Node recipe;
  try {
    recipe = parse_yaml(metadata_value(file, "recipe"));
  } catch (const YAML::Exception& error) {
    fail("{}: the recipe in its metadata is not valid YAML: {}", file.path().string(), error.msg);
  }
  info.recipe = parse_stored_recipe(recipe, metadata_value(file, "name"));
  const auto input = metadata_list<int64_t>(file, "input", "[channels, height, width]");
  check(input.size() == 3 && std::all_of(input.begin(), input.end(), is_extent),
        "{}: its metadata \"input\" is {}; expected [channels, height, width]",
        file.path().string(), shape_text(input));
  info.context.input = {input[0], input[1], input[2]};
  info.class_names = metadata_list<std::string>(file, "classes", "a list of names");
  const std::string& epoch = metadata_value(file, "epoch");
  const auto [end, error] = std::from_chars(epoch.data(), epoch.data() + epoch.size(), info.epoch);
  check(error == std::errc() && end == epoch.data() + epoch.size(),
        "{}: its metadata \"epoch\" is {}; expected a number", file.path().string(), epoch);
  info.context.classes = static_cast<int64_t>(info.class_names.size());
  info.context.mean = info.recipe.dataset.augment.mean;
  info.context.std = info.recipe.dataset.augment.std;
  return info;
}

}  // namespace remcaps
