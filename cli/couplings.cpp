#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps::cli {
namespace {

struct CouplingsCommand {
  RunOptions run{"test"};
  std::string levels, out;
  int64_t limit = 0;
  bool all = false;
};

// Collects batches into one tensor for the whole split, which is allocated once. Several processes
// each add a batch at a time; rank 0 collects those of all.
class Stack {
 public:
  Stack(int64_t images, ProcessGroup* group) : images_(images), group_(group) {}

  void add(const std::string& name, const Tensor& batch) {
    if (group_ == nullptr) return append(name, batch);
    const Tensor own = batch.cpu().contiguous();
    std::vector<int64_t> shape = own.sizes().vec();
    for (std::string& part :
         group_->gather({static_cast<const char*>(own.data_ptr()), own.nbytes()})) {
      if (!writes(group_)) continue;
      shape[0] = -1;
      append(name, torch::from_blob(part.data(), {static_cast<int64_t>(part.size())}, torch::kUInt8)
                       .view(own.scalar_type())
                       .view(shape));
    }
  }
  const TensorMap& tensors() const { return tensors_; }

 private:
  void append(const std::string& name, const Tensor& batch) {
    Tensor& whole = tensors_[name];
    if (!whole.defined()) {
      std::vector<int64_t> shape = batch.sizes().vec();
      shape[0] = images_;
      whole = torch::empty(shape, torch::dtype(batch.scalar_type()));
    }
    int64_t& at = filled_[name];
    whole.slice(0, at, at + batch.size(0)).copy_(batch);
    at += batch.size(0);
  }

  int64_t images_;
  ProcessGroup* group_;
  TensorMap tensors_;
  std::map<std::string, int64_t> filled_;
};

// The first `count` images of a batch with and without quantization. Both use the column of the
// quantized prediction.
void add_batch(Stack& stack, const CouplingsCommand& command, const Batch& batch, int64_t count,
               const Forward& plain, const Forward& quantized, const Quantizers& quantizers) {
  const Tensor predicted = quantized.activations.argmax(1);
  const auto add = [&](const std::string& name, const Tensor& values) {
    stack.add(name, values.narrow(0, 0, count));
  };
  add("labels", batch.labels);
  add("predictions", predicted);
  add("predictions_unquantized", plain.activations.argmax(1));
  const auto levels_of = [&](size_t layer, const Tensor& coupling) {
    return level_indices(coupling, *quantizers[layer]).to(torch::kUInt8);
  };
  const size_t last = plain.routings.size() - 1;
  add("couplings", couplings_to(plain.routings[last].coupling, predicted));
  add("levels", levels_of(last, couplings_to(quantized.routings[last].coupling, predicted)));
  if (!command.all) return;
  for (size_t layer = 0; layer < plain.routings.size(); ++layer) {
    const std::string name = plain.routings[layer].layer;
    add(name + "/couplings", plain.routings[layer].coupling);
    if (quantizers[layer])
      add(name + "/levels", levels_of(layer, quantized.routings[layer].coupling));
  }
}

void run_couplings(const CouplingsCommand& command, std::vector<int64_t> levels,
                   const LoadedRun& run, ProcessGroup* group) {
  run.model->require_routing();
  if (writes(group)) prepare_output(command.out);
  const DataSplits data = run.load_data(command.run.place.data);
  const BatchSource source = run.source(data, command.run.split);
  const Quantizers quantizers = quantizers_of(run, levels);
  check(!quantizers.empty() && quantizers.back().has_value(),
        "the last routing layer of {} is not quantized (its K is 0): give --levels",
        run.weights.string());
  const int64_t images = command.limit > 0 ? std::min(command.limit, source.size()) : source.size();

  const torch::NoGradGuard no_grad;
  const bool bf16 = command.run.evaluation(run, group).bf16;
  ForwardOptions plain, quantized;
  plain.trace = quantized.trace = true;
  quantized.quantizers = quantizers;
  Stack stack(images, group);
  Progress bar("couplings", images);
  const int64_t processes = group == nullptr ? 1 : group->size();
  for (int64_t first = 0; first < images; first += processes * command.run.batch) {
    const int64_t own = first + (group == nullptr ? 0 : group->rank() * command.run.batch);
    const int64_t count = std::clamp<int64_t>(images - own, 0, command.run.batch);
    // A process that has nothing left adds no image of this batch.
    const Batch batch = source.evaluation_batch(count > 0 ? own : 0, std::max<int64_t>(count, 1));
    const EvaluationPrecision precision(bf16, run.device);
    add_batch(stack, command, batch, count, run.model->forward(batch.images, plain),
              run.model->forward(batch.images, quantized), quantizers);
    bar.update(std::min(images, first + processes * command.run.batch));
  }
  bar.finish();
  if (!writes(group)) return;

  TensorMap tensors = stack.tensors();
  levels.clear();
  for (size_t layer = 0; layer < quantizers.size(); ++layer) {
    levels.push_back(quantizers[layer] ? quantizers[layer]->levels() : 0);
    if (!quantizers[layer]) continue;
    const std::string name = run.model->routing_layers()[layer].name;
    tensors["edges/" + name] = torch::tensor(quantizers[layer]->edges(), torch::kDouble);
    tensors["values/" + name] = torch::tensor(quantizers[layer]->centres());
  }
  save_safetensors(command.out, tensors,
                   {{"weights", run.weights.string()},
                    {"model", run.recipe.model},
                    {"dataset", run.recipe.dataset.name},
                    {"split", command.run.split},
                    {"levels", fmt::format("{}", fmt::join(levels, ","))}});
  if (command.run.json) {
    nlohmann::json json = {{"file", command.out}, {"images", images}, {"levels", levels}};
    for (const auto& [name, tensor] : tensors) json["tensors"][name] = tensor.sizes().vec();
    fmt::print("{}\n", json_text(json));
    return;
  }
  fmt::print("{}: {} images\n", command.out, with_commas(images));
  for (const auto& [name, tensor] : tensors)
    fmt::print("  {:<28} [{}]\n", name, fmt::join(tensor.sizes(), ", "));
}

}  // namespace

void add_couplings(CLI::App& app) {
  auto* command = app.add_subcommand(
      "couplings", "Write couplings, level indices, predictions and labels to a safetensors file");
  auto options = std::make_shared<CouplingsCommand>();
  options->run.add_to(*command);
  command->add_option("--out", options->out, "The file to write")->required();
  command->add_option("--levels", options->levels,
                      "K of the quantizer, one or one per routing layer (default: the recipe's)");
  command->add_option("--limit", options->limit, "Only the first N images (default: all)")
      ->check(at_least(0));
  command->add_flag("--all", options->all,
                    "The whole matrices of every routing layer too, not only the predicted "
                    "class's column of the last");
  command->footer(
      "Example:\n  remcaps couplings runs/mnist/dr-capsnet/seed-42 --out couplings.safetensors");
  command->callback([options] {
    const auto levels =
        options->levels.empty() ? std::vector<int64_t>() : parse_levels(options->levels);
    options->run.with_run([&](const LoadedRun& run, ProcessGroup* group) {
      run_couplings(*options, levels, run, group);
    });
  });
}

}  // namespace remcaps::cli
