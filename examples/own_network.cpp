// A capsule network of your own, trained with REM on real images.
//
//   example_own_network [WEIGHTS.safetensors]
//
// REM sees a network only through its named parameters and the RoutingTraces it returns, so nothing
// of pruning, quantization, dictionaries or entropy has to be written again. Trains on 1,024 images
// of Fashion-MNIST for a few seconds and ends with lines such as
//   accuracy 58.4 %, quantized 58.2 %   entropy 2.1 bits   sparsity 21.3 %
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>

#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/data/batches.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/adam.h"

namespace {

using namespace remcaps;

/// One convolution, primary capsules on a grid, class capsules: DR-CapsNet in small.
class TinyCapsNet : public CapsNet {
 public:
  TinyCapsNet(const ModelContext& context)
      : CapsNet("tiny-capsnet", context.input, context.classes) {
    conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(
                                        context.input.channels, 16, /*kernel=*/9)));
    primary_ = register_module(
        "primary", PrimaryCaps(PrimaryCapsOptions(16, kTypes, /*kernel=*/9).dim(kDim).stride(2)));
    height_ = (context.input.height - 8 - 9) / 2 + 1;
    width_ = (context.input.width - 8 - 9) / 2 + 1;
    class_ =
        register_module("class", FcCaps(FcCapsOptions(kTypes * height_ * width_, context.classes)
                                            .child_dim(kDim)
                                            .parent_dim(8)));
  }

  Forward forward(const Tensor& images, const ForwardOptions& options) override {
    const Tensor children = primary_->forward(torch::relu(conv_->forward(images)));  // [B, I, 4]
    RoutingRequest request;
    request.coupling = options.trace;
    if (!options.quantizers.empty()) request.quantizer = options.quantizers[0];
    const RoutingResult routed = class_->forward(children, request);

    Forward result;
    result.poses = routed.poses;                    // [B, J, 8]
    result.activations = routed.poses.norm(2, -1);  // [B, J]
    if (options.trace) {
      RoutingTrace trace;
      trace.layer = "class";
      trace.coupling = routed.coupling;  // [B, I, J]
      trace.child_activations = children.norm(2, -1);
      trace.grids = {CapsuleGrid{.offset = 0,
                                 .types = kTypes,
                                 .height = height_,
                                 .width = width_,
                                 .stride_type = height_ * width_,
                                 .stride_y = width_,
                                 .stride_x = 1}};
      result.routings.push_back(std::move(trace));
    }
    return result;
  }

  std::vector<RoutingLayer> routing_layers() const override {
    return {{"class", kTypes * height_ * width_, classes(), /*iterations=*/3, false}};
  }
  std::vector<LayerCost> costs() const override { return {}; }
  std::vector<std::string> prunable_layers() const override { return {"conv", "primary", "class"}; }

 private:
  static constexpr int64_t kTypes = 8, kDim = 4;
  int64_t height_ = 0, width_ = 0;
  torch::nn::Conv2d conv_{nullptr};
  PrimaryCaps primary_{nullptr};
  FcCaps class_{nullptr};
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string warning = prepare_embedded();
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);

  DatasetOptions dataset;
  dataset.name = "fashion-mnist";
  dataset.limit_train = 1024;
  dataset.validation = 512;  // every threshold of the search is a pass over them
  dataset.limit_test = 1000;
  dataset.augment = default_augment(dataset.name);
  const DataSplits data = load_dataset(dataset, data_root(""));
  const torch::Device device = parse_device(default_device());
  const BatchSource train(data.train, dataset.augment, device);
  const BatchSource validation(data.validation, dataset.augment, device);
  const BatchSource test(data.test, dataset.augment, device);

  torch::manual_seed(42);
  ModelContext context;
  context.input = {1, 28, 28};
  TinyCapsNet model(context);
  model.to(device);

  Adam::NamedParameters parameters;
  for (const auto& parameter : model.named_parameters())
    parameters.emplace_back(parameter.key(), parameter.value());
  Adam adam(parameters, {});

  // Any strategy by its name; this is the published one with a bolder regulariser, for a short run.
  ConfigSection section(YAML::Load("{strategy: lobster, lambda: 0.001}"), "own_network", "pruning");
  const std::unique_ptr<Pruner> pruner = make_pruner(section);
  PruningContext pruning{model};
  pruning.validation_loss = [&] { return evaluate_margin_loss(model, validation, {}); };

  constexpr int64_t kEpochs = 4, kBatch = 64;
  for (pruning.epoch = 0; pruning.epoch < kEpochs; ++pruning.epoch) {
    model.train();
    pruner->before_epoch(pruning);
    for (int64_t step = 0; step < train.batches(kBatch); ++step) {
      const Batch batch = train.training_batch(step, kBatch, /*seed=*/42, pruning.epoch);
      adam.zero_grad();
      margin_loss(model.forward(batch.images, {}).activations, batch.labels, {}).backward();
      pruner->after_backward(pruning);
      adam.step(/*lr=*/2e-3);
      pruner->after_step(pruning);
    }
    const PruningReport report = pruner->after_epoch(pruning);
    fmt::print("epoch {}  validation loss {:.4f} before pruning, {:.4f} after\n", pruning.epoch,
               report.loss_before, report.loss_after);
  }

  ForwardOptions quantized;
  quantized.trace = true;
  quantized.quantizers = {Quantizer::uniform(11)};
  TreeCollector trees(model, quantized.quantizers);
  EvaluateOptions options;
  const double accuracy = evaluate(model, test, options).accuracy;
  options.forward = quantized;
  options.on_batch = [&](const Batch& batch, const Forward& forward) {
    trees.add(forward, batch.labels);
  };
  evaluate(model, test, options);
  const ParseTreeReport report = trees.report();
  fmt::print("accuracy {:.1f} %, quantized {:.1f} %   entropy {:.2f} bits   sparsity {:.1f} %\n",
             accuracy * 100, report.accuracy_quantized * 100, report.last().entropy,
             measure_sparsity(model).published() * 100);

  if (argc > 1) {
    TensorMap weights;
    for (const auto& parameter : model.named_parameters())
      weights.emplace(parameter.key(), parameter.value());
    save_safetensors(argv[1], weights);
    fmt::print("weights in {}\n", argv[1]);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "example_own_network: {}\n", error.what());
  return 1;
}
