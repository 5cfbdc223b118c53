#include "remcaps/report/model_export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/evaluation/split_trees.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/report/runtime_variant.h"
#include "remcaps/runs/zoo.h"
#include "remcaps/runtime/network.h"
#include "remcaps/tensors/safetensors.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The part of a card that is not numbers: how the run was trained. It comes from the run's folder,
// or from the old card if an exported file is exported again.
json origin_of(const LoadedRun& run) {
  json origin = json::object();
  const auto keep = [](const json& from, json& to, std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (from.contains(key)) to[key] = from[key];
  };
  if (has_card(run.weights))
    keep(read_card(run.weights), origin, {"training", "data_note", "pruned"});
  const fs::path file = run.weights.parent_path() / "summary.json";
  std::error_code error;
  if (!fs::exists(file, error)) return origin;
  const json summary = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  check(summary.is_object(), "{}: not valid JSON", file.string());
  keep(summary, origin["training"], {"epochs", "stopped", "seconds", "machine", "commit"});
  origin["training"]["precision"] = run.recipe.precision;
  return origin;
}

std::string training_text(const json& training) {
  std::string text = fmt::format("{} epochs in {}", training.value("epochs", 0),
                                 human_seconds(training.value("seconds", 0.0)));
  if (const std::string machine = training.value("machine", ""); !machine.empty())
    text += " on " + machine;
  if (const std::string precision = training.value("precision", "float32"); precision != "float32")
    text += fmt::format(" ({})", precision);
  const std::string stopped = training.value("stopped", "");
  if (stopped == "minutes") return text + ", stopped by a time limit";
  if (stopped == "epochs") return text + ", the limit it was given";
  return stopped.empty() ? text : fmt::format("{}, ended by {}", text, stopped);
}

// The levels of every routing layer; 0: not quantized.
std::string levels_text(const std::vector<int64_t>& levels) {
  std::vector<std::string> parts;
  for (const int64_t k : levels) parts.push_back(k > 0 ? std::to_string(k) : "none");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Texts of another file's card may hold anything.
std::string in_a_cell(const std::string& text) {
  std::string cell;
  for (const char letter : printable(text)) {
    if (letter == '|' || letter == '<') cell += '\\';
    cell += letter;
  }
  return cell;
}

std::string card_rows(const json& numbers) {
  std::string text = "| | |\n|---|---|\n";
  const auto row = [&text](const std::string& what, const std::string& value) {
    text += fmt::format("| {} | {} |\n", what, in_a_cell(value));
  };
  const auto percent = [&numbers](const char* key) {
    return fmt::format("{:.2f} %", 100 * numbers.at(key).get<double>());
  };
  const DatasetDescriptor& data = find_dataset(numbers.at("dataset"));
  row("network", numbers.at("model"));
  row("data", data.title);
  if (numbers.contains("data_note")) row("not the official data", numbers["data_note"]);
  if (!data.terms.empty()) row("licence of the data", data.terms);
  row("recipe",
      fmt::format("`{}`, seed {}, weights of epoch {}", numbers.at("recipe").get<std::string>(),
                  numbers.at("seed").get<int64_t>(), numbers.at("epoch").get<int64_t>() + 1));
  if (numbers.contains("training")) row("training", training_text(numbers["training"]));
  if (numbers.contains("pruned")) row("pruned after training", numbers["pruned"]);
  row("test accuracy",
      fmt::format("{} of {} images", percent("accuracy"), with_commas(numbers.at("samples"))));
  if (numbers.contains("accuracy_quantized")) {
    row("with quantized couplings",
        fmt::format("{}, K = {}", percent("accuracy_quantized"),
                    levels_text(numbers.at("levels").get<std::vector<int64_t>>())));
    row("entropy of the parse trees",
        fmt::format("{:.2f} ± {:.2f} bits over classes", numbers.at("entropy").get<double>(),
                    numbers.at("entropy_std_over_classes").get<double>()));
    row("parse trees",
        fmt::format("{:g} per class (median)", numbers.at("median_keys").get<double>()));
  }
  if (numbers.contains("effective_parts"))
    row("effective parts", fmt::format("{:.1f} capsules carry half of the evidence, on average",
                                       numbers["effective_parts"].at("half").get<double>()));
  if (numbers.contains("capsules"))
    row("capsules", fmt::format("{}, {} left", with_commas(numbers["capsules"].get<int64_t>()),
                                with_commas(numbers.at("capsules_left").get<int64_t>())));
  row("parameters", fmt::format("{}, {} not zero", with_commas(numbers.at("parameters")),
                                with_commas(numbers.at("parameters_nonzero"))));
  row("sparsity", percent("sparsity"));
  row("made with", fmt::format("remcaps {}", numbers.at("remcaps").get<std::string>()));
  return text;
}

// What the changes that export made have cost.
std::string changed_rows(const json& numbers) {
  const json& changed = numbers.at("changed");
  std::string text = fmt::format("\n| on the test images | trained | {} |\n|---|---|---|\n",
                                 changed.at("what").get<std::string>());
  const auto row = [&](const char* what, const char* key, double scale, const char* unit) {
    if (changed.contains(key) && numbers.contains(key))
      text +=
          fmt::format("| {} | {:.2f}{} | {:.2f}{} |\n", what, scale * numbers.at(key).get<double>(),
                      unit, scale * changed.at(key).get<double>(), unit);
  };
  row("accuracy", "accuracy", 100, " %");
  row("accuracy with quantized couplings", "accuracy_quantized", 100, " %");
  row("entropy of the parse trees", "entropy", 1, " bits");
  row("parse trees per class (median)", "median_keys", 1, "");
  return text;
}

// The run has the compressed weights afterwards: they are the ones that users will read.
CompressedTensors compress_weights(LoadedRun& run) {
  CompressedTensors compressed = compress_tensors(weights_of(*run.model));
  load_weights(*run.model, decompress_tensors(compressed, run.weights.string()),
               run.weights.string());
  return compressed;
}

// An image that is no picture, to compare two networks with.
torch::Tensor trial_image(const CapsNet& model) {
  const ImageShape input = model.input();
  return torch::arange(input.channels * input.height * input.width)
      .mul(0.37)
      .sin()
      .to(torch::kFloat32)
      .view({1, input.channels, input.height, input.width});
}

// Calls `use` with the bytes of a file that would hold the network.
template <typename Use>
void try_out(const CompressedTensors& compressed, const WeightsInfo& info,
             const std::optional<NetworkGraph>& graph, const Use& use) {
  const std::string bytes = exported_bytes(compressed, info, graph, "{}");
  use(SafetensorsBytes(std::as_bytes(std::span(bytes)), info.recipe.name));
}

// Why the runtime's answer for an image is not that of the network, up to `most`. Nothing if it is.
std::optional<std::string> disagreement(CapsNet& model, const WeightsInfo& info,
                                        const CompressedTensors& compressed,
                                        const std::optional<NetworkGraph>& graph, float most) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor image = trial_image(model);
  const torch::Tensor lengths = model.forward(image).activations.contiguous();
  std::optional<std::string> why;
  try_out(compressed, info, graph, [&](const SafetensorsBytes& file) {
    try {
      const runtime::Answer answer =
          runtime::Network(file).run({image.data_ptr<float>(), static_cast<size_t>(image.numel())});
      if (static_cast<int64_t>(answer.lengths.size()) != lengths.numel()) {
        why = fmt::format("the runtime gives {} lengths, the network {}", answer.lengths.size(),
                          lengths.numel());
        return;
      }
      float difference = 0;
      for (size_t k = 0; k < answer.lengths.size(); ++k) {
        const float other = std::abs(answer.lengths[k] - lengths.data_ptr<float>()[k]);
        if (!(other <= difference)) difference = other;
      }
      if (!(difference <= most))
        why = fmt::format("the runtime's lengths differ from the network's by up to {:.2g}",
                          difference);
    } catch (const Error& error) {
      why = fmt::format("the runtime cannot run it: {}", error.what());
    }
  });
  return why;
}

// The graph of a network with compressed weights. Nothing, and a note that says why, if the runtime
// does not give the network's answer for an image: a network may have inherited the graph of a
// built-in one and compute something else.
std::optional<NetworkGraph> checked_graph(CapsNet& model, const WeightsInfo& info,
                                          const CompressedTensors& compressed) {
  std::optional<NetworkGraph> graph = inference_graph(model, info);
  if (!graph) return graph;
  constexpr float kMost = 1e-4F;
  const auto why = disagreement(model, info, compressed, graph, kMost);
  if (!why) return graph;
  say("note: {}: exported without a graph, since {}", info.recipe.name, *why);
  return std::nullopt;
}

NetworkData data_of(const NetworkGraph& graph, const CompressedTensors& compressed,
                    const std::string& source) {
  NetworkData network{graph, {}};
  for (const auto& [name, tensor] : decompress_tensors(compressed, source))
    if (tensor.scalar_type() == torch::kFloat32)
      network.tensors[name] = {
          tensor.sizes().vec(),
          {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()}};
  return network;
}

// Takes out what is dead; whether anything was.
bool make_compact(NetworkData& network) {
  const NetworkData before = network;
  network = compacted(std::move(network));
  return std::any_of(network.tensors.begin(), network.tensors.end(), [&](const auto& item) {
    return item.second.shape != before.tensors.at(item.first).shape;
  });
}

WeightsInfo shared_info(const LoadedRun& run) {
  WeightsInfo info{run.recipe, run.context, run.class_names, run.epoch};
  // A path on the machine it was trained on is of no use to others, except as the name of the
  // user's own pictures.
  if (!find_dataset(info.recipe.dataset.name).needs_folder) info.recipe.dataset.folder.clear();
  return info;
}

// What the options change in a network before it is written.
struct Changes {
  std::vector<std::string> words;
  json numbers = json::object();  ///< of the changed network, if its answers are others
};

Changes change_network(LoadedRun& run, const WeightsInfo& info, CompressedTensors& compressed,
                       std::optional<NetworkGraph>& graph, const ModelExportOptions& options,
                       const DataSplits* data, const std::function<void(int64_t)>& on_progress) {
  Changes changes;
  if (!options.compact && !options.changes_answers()) return changes;
  check(graph.has_value(), "{}: a network without a graph can be exported only as it is",
        run.weights.string());
  NetworkData network = data_of(*graph, compressed, run.weights.string());
  if (options.static_routing) {
    try_out(compressed, info, graph, [&](const SafetensorsBytes& file) {
      fix_couplings(network, mean_couplings(runtime::Network(file), data->split("train")));
    });
    changes.words.push_back("static routing");
  }
  if (options.compact && make_compact(network)) changes.words.push_back("compact");
  if (options.int8_weights) changes.words.push_back("8-bit weights");
  if (changes.words.empty()) return changes;
  graph = network.graph;
  compressed = compress_network(network, options.int8_weights);
  compressed.metadata[kCompactMetadata] = fmt::format("{}", fmt::join(changes.words, ", "));
  constexpr float kMost = 1e-5F;
  if (options.changes_answers())
    try_out(compressed, info, graph, [&](const SafetensorsBytes& file) {
      changes.numbers =
          measure_with_runtime(runtime::Network(file), data->split("test"), on_progress);
    });
  else if (const auto why = disagreement(*run.model, info, compressed, graph, kMost))
    fail("{}: the compact network is not the same: {}", run.weights.string(), *why);
  return changes;
}

ModelExport write_model(LoadedRun& run, CompressedTensors compressed, const fs::path& out,
                        json numbers, const ModelExportOptions& options,
                        const DataSplits* data = nullptr,
                        const std::function<void(int64_t)>& on_progress = {}) {
  const WeightsInfo info = shared_info(run);
  std::optional<NetworkGraph> graph = checked_graph(*run.model, info, compressed);
  Changes changes = change_network(run, info, compressed, graph, options, data, on_progress);
  if (!changes.numbers.empty()) {
    numbers["changed"] = std::move(changes.numbers);
    numbers["changed"]["what"] = fmt::format("{}", fmt::join(changes.words, ", "));
  }
  const bool is_compact = std::count(changes.words.begin(), changes.words.end(), "compact") > 0;
  ModelExport result{out, fs::path(out).replace_extension(".md"), numbers,
                     options.compact && !is_compact};
  save_compressed_weights(out, compressed, info, graph, json_text(numbers));
  write_atomically(result.card, card_text(out));
  return result;
}

}  // namespace

std::optional<std::string> network_for_runtime(LoadedRun& run) {
  const CompressedTensors compressed = compress_weights(run);
  const WeightsInfo info = shared_info(run);
  const auto graph = checked_graph(*run.model, info, compressed);
  if (!graph) return std::nullopt;
  return exported_bytes(compressed, info, graph, "{}");
}

std::string network_for_runtime(LoadedRun& run, const std::string& purpose) {
  std::optional<std::string> bytes = network_for_runtime(run);
  check(bytes.has_value(), "{}: {} has no graph, so that it cannot {}", run.weights.string(),
        run.recipe.model, purpose);
  return std::move(*bytes);
}

json measure_for_card(const LoadedRun& run, const BatchSource& test,
                      const std::function<void(int64_t)>& on_progress) {
  EvaluateOptions options = run.evaluation();
  options.on_progress = on_progress;
  const SplitMeasurement measured = measure_split(
      *run.model, test, run.recipe.quantize.quantizers(run.model->routing_layers().size()), options,
      /*scores=*/true);
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
  const DeadStructures dead = count_dead_structures(*run.model);
  if (dead.dead_capsules > 0) {
    numbers["capsules"] = dead.capsules;
    numbers["capsules_left"] = dead.capsules - dead.dead_capsules;
  }
  if (measured.trees) add_parse_trees(numbers, *measured.trees);
  return numbers;
}

ModelExport export_model(LoadedRun& run, const DataSplits& data, const fs::path& out,
                         const ModelExportOptions& options,
                         const std::function<void(int64_t)>& on_progress) {
  prepare_output(out);
  const CompressedTensors compressed = compress_weights(run);
  json numbers = measure_for_card(run, run.source(data, "test"), on_progress);
  numbers["remcaps"] = kVersion;
  numbers.update(origin_of(run));
  for (const std::string& note : {data.test.note, options.data_note})
    if (!note.empty()) numbers["data_note"] = note;
  if (!options.pruned.empty()) numbers["pruned"] = options.pruned;
  return write_model(run, compressed, out, numbers, options, &data, on_progress);
}

ModelExport export_again(LoadedRun& run, const fs::path& out, bool compact) {
  prepare_output(out);
  const json numbers = read_card(run.weights);
  return write_model(run, compress_weights(run), out, numbers, {.compact = compact});
}

bool has_card(const fs::path& weights) {
  return SafetensorsFile(weights).metadata().contains("card");
}

json read_card(const fs::path& weights) {
  const Metadata metadata = SafetensorsFile(weights).metadata();
  const auto card = metadata.find("card");
  check(card != metadata.end(), "{}: has no card (`remcaps export` writes one)", weights.string());
  json numbers = json::parse(card->second, nullptr, /*allow_exceptions=*/false);
  check(numbers.is_object(), "{}: the card in its metadata is not valid JSON", weights.string());
  return numbers;
}

std::string card_text(const fs::path& weights) {
  const json numbers = read_card(weights);
  const std::string stem = weights.stem().string();
  const std::string name = zoo_name_of(weights).value_or(stem + ".safetensors");
  try {
    const bool compact = SafetensorsFile(weights).metadata().contains(kCompactMetadata);
    const bool changed = numbers.contains("changed");
    std::string note = fmt::format(
        "The numbers are those of this file, on a CPU: `remcaps eval {} --device cpu` gives them "
        "again.\n",
        name);
    if (compact)
      note =
          "The numbers are those of the network before it was made compact. The lengths of its "
          "capsules are the same to 1e-5.\n";
    if (changed)
      note =
          "The numbers above are those of the trained network. Only the runtime reads this "
          "file.\n" +
          changed_rows(numbers);
    return fmt::format(
        "# {}\n\n{}| file | {}, {}; pruned tensors as a bitmap and what is left |\n\n{}",
        name.substr(name.find(':') + 1), card_rows(numbers),
        human_bytes(static_cast<double>(fs::file_size(weights))),
        changed && numbers["changed"].at("what").get<std::string>().ends_with("8-bit weights")
            ? "weights of 8 bits"
            : "half precision",
        note);
  } catch (const json::exception&) {
    fail("{}: the card in its metadata lacks a value, or has one of another kind",
         weights.string());
  }
}

}  // namespace remcaps
