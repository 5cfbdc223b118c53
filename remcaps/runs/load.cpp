#include "remcaps/runs/load.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/message.h"
#include "remcaps/capsule/packed_weight.h"
#include "remcaps/data/formats/image_file.h"
#include "remcaps/data/resize.h"
#include "remcaps/models/network_plan.h"
#include "remcaps/runs/zoo.h"
#include "remcaps/torch/compat.h"
#include "remcaps/torch/compressed.h"
#include "remcaps/torch/runtime.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// The data folder in run.json; empty if there is none, or if it does not exist any more.
fs::path recorded_data_root(const RunFolder& folder) {
  std::error_code error;
  if (!fs::exists(folder.info(), error)) return {};
  try {
    const fs::path root = nlohmann::json::parse(read_file(folder.info())).value("data", "");
    return fs::exists(root, error) ? root : fs::path();
  } catch (const nlohmann::json::exception&) {
    fail("{}: not valid JSON", folder.info().string());
  }
}

fs::path checkpoint_of(const RunFolder& folder, const std::string& wanted) {
  std::string name = wanted;
  if (name.empty()) name = read_run_recipe(folder).counts_last() ? "last" : "best";
  const fs::path path = folder.path() / (name + ".safetensors");
  std::error_code error;
  check(fs::exists(path, error), "{}: the run has no such checkpoint{}", path.string(),
        wanted.empty() ? " (its first epoch is not over yet)" : "");
  return path;
}

// Reads the file `run.weights` and makes its network.
void load_network(LoadedRun& run, torch::Device device) {
  const SafetensorsFile file(run.weights);
  WeightsInfo info = read_weights_info(file);
  run.recipe = std::move(info.recipe);
  run.context = info.context;
  run.class_names = std::move(info.class_names);
  run.epoch = info.epoch;
  run.device = device;
  if (device.is_cuda()) run.compute_in(run.recipe.precision);
  run.context.load_pretrained = false;
  const TensorMap tensors = load_decompressed(file);
  {
    const WeightLimit limit(run.weights.string(), numbers_in(tensors));
    run.model = build_model(run.recipe, run.context);
  }
  load_weights(*run.model, tensors, run.weights.string());
  run.model->to(device);
  run.model->eval();
  pack_weights(*run.model);
}

}  // namespace

fs::path run_data_root(const RunFolder& folder, const std::string& from_command_line) {
  if (!from_command_line.empty()) return data_root(from_command_line);
  const fs::path recorded = recorded_data_root(folder);
  return recorded.empty() ? data_root("") : recorded;
}

std::string LoadedRun::class_name(int64_t class_index) const {
  const size_t place = static_cast<size_t>(class_index);
  return place < class_names.size() ? class_names[place] : std::to_string(class_index);
}

DataSplits LoadedRun::load_data(const std::string& from_command_line) const {
  const bool use_recorded = from_command_line.empty() && !data_root.empty();
  return load_dataset(recipe.dataset,
                      use_recorded ? data_root : remcaps::data_root(from_command_line));
}

BatchSource LoadedRun::source(const DataSplits& data, const std::string& split) const {
  const Dataset& images = data.split(split);
  if (!images.note.empty()) say("note: {}: {}", data.name, images.note);
  return source(images, split);
}

BatchSource LoadedRun::source(const Dataset& images, const std::string& split) const {
  const BatchSource source(images, recipe.dataset.augment, device);
  const ImageShape input = model->input();
  const std::vector<int64_t> expected = {input.channels, input.height, input.width};
  check(source.image_shape() == expected, "{} {}: images of {}; the network was trained on {}",
        recipe.dataset.name, split, fmt::join(source.image_shape(), "x"), fmt::join(expected, "x"));
  return source;
}

void LoadedRun::compute_in(const std::string& given) {
  precision = given;
  if (device.is_cuda()) set_tf32(precision != "float32");
}

EvaluateOptions LoadedRun::evaluation() const {
  EvaluateOptions options = evaluation_options(recipe, epoch, device);
  options.bf16 = precision == "bf16";
  return options;
}

torch::Tensor LoadedRun::read_input(const fs::path& image, bool invert) const {
  const ImageShape input = model->input();
  AugmentOptions augment = recipe.dataset.augment;
  // Only a centre crop after a resize (smallNORB) is kept. All other pictures are resized to the
  // input's size.
  const bool crops = augment.crop > 0 && augment.resize > 0;
  const int64_t height = crops ? augment.resize : input.height;
  const int64_t width = crops ? augment.resize : input.width;
  augment.pad = augment.resize = 0;
  if (!crops) augment.crop = 0;
  torch::Tensor bytes = read_image(image, input.channels == 3 ? 3 : 1);  // [1 or 3, H, W]
  if (invert) bytes = 255 - bytes;
  bytes = resize_images(bytes, height, width, augment.antialias);
  if (bytes.size(0) != input.channels) bytes = bytes.repeat({input.channels, 1, 1});
  return prepare_images(bytes.unsqueeze(0).to(device), augment);
}

void start_from(CapsNet& model, const fs::path& trained) {
  start_from(model, load_run(trained, torch::kCPU));
}

void start_from(CapsNet& model, const LoadedRun& trained) {
  const TensorMap from = weights_of(*trained.model);
  TensorMap mixed = weights_of(model);
  int64_t found = 0;
  for (auto& [name, tensor] : mixed) {
    const auto match = from.find(name);
    if (match == from.end()) continue;
    tensor = match->second;
    ++found;
  }
  check(found > 0, "{}: {} has no tensor in common with {}", trained.weights.string(),
        trained.model->name(), model.name());
  load_weights(model, mixed, trained.weights.string());
}

LoadedRun load_run(const fs::path& run_or_name, torch::Device device,
                   const std::string& checkpoint) {
  const fs::path path =
      is_zoo_name(run_or_name.string()) ? find_in_zoo(run_or_name.string()) : run_or_name;
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  check(is_folder || fs::exists(path, error), "{}: no such run folder or weights file",
        path.string());
  if (!is_folder && !checkpoint.empty())
    throw UsageError(fmt::format("{}: a weights file has no other checkpoint", path.string()));
  LoadedRun run;
  if (is_folder) {
    const RunFolder folder = RunFolder::open(path);
    run.weights = checkpoint_of(folder, checkpoint);
    run.data_root = recorded_data_root(folder);
  } else {
    run.weights = path;
  }
  with_enough_memory(run.weights.string(), [&] { load_network(run, device); });
  return run;
}

}  // namespace remcaps
