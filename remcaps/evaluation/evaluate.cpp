#include "remcaps/evaluation/evaluate.h"

#include <tuple>

#include "remcaps/base/error.h"
#include "remcaps/evaluation/memory.h"
#include "remcaps/ops/batch.h"

namespace remcaps {
namespace {

// Batches of a recorded pass that run at a time. Each needs memory for its activations.
constexpr int64_t kRecordedStreams = 2;

// Puts a network into evaluation mode, and back into its former mode at the end.
class EvaluationMode {
 public:
  explicit EvaluationMode(CapsNet& model) : model_(model), was_training_(model.is_training()) {
    model.eval();
  }
  ~EvaluationMode() {
    if (was_training_) model_.train();
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  CapsNet& model_;
  bool was_training_;
};

// Calls `body(batch, forward, index, stream)` for every batch of this process, in order.
template <typename Body>
void for_each_batch(CapsNet& model, const BatchSource& source, const EvaluateOptions& options,
                    const ForwardOptions& forward_options, int64_t streams, const Body& body) {
  torch::NoGradGuard no_grad;
  EvaluationMode mode(model);
  ParallelStreams side_by_side(source.device(), streams);
  const auto run = [&](int64_t index, int64_t stream) {
    const Batch batch = source.evaluation_batch(index * options.batch, options.batch);
    mark(options.clock, "batch");
    Forward forward, second;
    {
      const torch::Device device = batch.images.device();
      const EvaluationPrecision precision(options.bf16, device);
      if (options.second)
        std::tie(forward, second) =
            model.forward_both(batch.images, forward_options, *options.second);
      else
        forward = model.forward(batch.images, forward_options);
    }
    forward.activations = forward.activations.to(torch::kFloat32);
    mark(options.clock, "forward");
    if (options.second && options.on_second) {
      second.activations = second.activations.to(torch::kFloat32);
      options.on_second(batch, second);
    }
    body(batch, forward, index, stream);
    mark(options.clock, "sums");
  };
  const int64_t processes = options.group == nullptr ? 1 : options.group->size();
  int64_t index = options.group == nullptr ? 0 : options.group->rank();
  for (int64_t stream = 0; index < source.batches(options.batch); index += processes) {
    side_by_side.on(stream, [&run, index, stream] { run(index, stream); });
    stream = (stream + 1) % streams;
  }
  side_by_side.join();
}

// The forward pass, loss and sums of every batch.
void add_batches(CapsNet& model, const BatchSource& source, const EvaluateOptions& options,
                 const EvaluationSums& sums) {
  const int64_t classes = model.classes();
  const bool reconstruct = options.reconstruction > 0 && model.has_decoder();
  ForwardOptions forward_options = options.forward;
  forward_options.reconstruct = forward_options.reconstruct || reconstruct;
  for_each_batch(
      model, source, options, forward_options, sums.streams(),
      [&](const Batch& batch, const Forward& forward, int64_t index, int64_t stream) {
        Tensor loss =
            margin_loss(forward.activations, batch.labels, options.margin, options.kernels);
        if (reconstruct)
          loss = loss +
                 options.reconstruction *
                     reconstruction_loss(forward.reconstruction.to(torch::kFloat32), batch.images);
        Tensor batch_loss = sums.losses[index], confusion = sums.confusion[stream];
        if (options.kernels == KernelPath::kFused && has_fused_sums(loss, forward.activations)) {
          add_to_fused_evaluation(loss, forward.activations, batch.labels, batch_loss, confusion);
        } else {
          batch_loss.copy_(loss);
          const Tensor cell = batch.labels * classes + forward.activations.argmax(1);  // [B]
          confusion.scatter_add_(0, cell, torch::ones_like(cell));
        }
        if (options.on_batch) options.on_batch(batch, forward);
        if (options.on_progress) options.on_progress(index * options.batch + batch.labels.size(0));
      });
}

struct MeanLosses {
  double images = 0, batches = 0;  // Evaluation's loss and batch_mean_loss
};

// losses: float32 [batches]. Every batch has `batch` images; the last may have fewer.
MeanLosses mean_losses(const Tensor& losses, const BatchSource& source, int64_t batch) {
  const Tensor on_host = losses.cpu();
  const auto loss = on_host.accessor<float, 1>();
  MeanLosses means;
  for (int64_t i = 0; i < loss.size(0); ++i) {
    const int64_t images = std::min(batch, source.size() - i * batch);
    means.images += static_cast<double>(loss[i]) * static_cast<double>(images);
    means.batches += loss[i];
  }
  means.images /= static_cast<double>(source.size());
  means.batches /= static_cast<double>(loss.size(0));
  return means;
}

Evaluation read_back(const EvaluationSums& sums, const BatchSource& source, int64_t batch,
                     int64_t classes) {
  Evaluation result;
  result.samples = source.size();
  const MeanLosses means = mean_losses(sums.losses, source, batch);
  result.loss = means.images;
  result.batch_mean_loss = means.batches;
  result.confusion = sums.confusion.cpu().sum(0).view({classes, classes});
  result.accuracy = static_cast<double>(result.confusion.diagonal().sum().item<int64_t>()) /
                    static_cast<double>(result.samples);
  return result;
}

}  // namespace

EvaluateOptions evaluation_options(const Recipe& recipe, int64_t epoch, torch::Device device) {
  EvaluateOptions options;
  options.margin = recipe.loss.margin(epoch);
  options.bf16 = recipe.precision == "bf16" && device.is_cuda();
  options.kernels = recipe.kernel_path();
  return options;
}

EvaluationSums EvaluationSums::zeros(int64_t batches, int64_t streams, int64_t classes,
                                     torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  return {torch::zeros({batches}, options.dtype(torch::kFloat32)),
          torch::zeros({streams, classes * classes}, options.dtype(torch::kInt64))};
}

EvaluationSums EvaluationSums::of_all(ProcessGroup* group) const {
  if (group == nullptr) return *this;
  // No batch has two values, so the sums are exact. This process's own must stay as they are: a
  // recorded pass writes to them again.
  const EvaluationSums sums = {losses.clone(), confusion.clone()};
  group->all_reduce_sum(sums.losses);
  group->all_reduce_sum(sums.confusion);
  return sums;
}

std::vector<std::vector<int64_t>> rows_of(const Tensor& matrix) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t r = 0; r < matrix.size(0); ++r) {
    const Tensor row = matrix[r].contiguous();
    rows.emplace_back(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel());
  }
  return rows;
}

Evaluation evaluate(CapsNet& model, const BatchSource& source, const EvaluateOptions& options) {
  const EvaluationSums sums = EvaluationSums::zeros(source.batches(options.batch), /*streams=*/1,
                                                    model.classes(), source.device());
  add_batches(model, source, options, sums);
  return read_back(sums.of_all(options.group), source, options.batch, model.classes());
}

EvaluationPass::EvaluationPass(CapsNet& model, const BatchSource& source,
                               const EvaluateOptions& options, bool record)
    : model_(model),
      source_(source),
      records_(record && has_device_graphs(source.device()) && source.stays_on_device()),
      sums_(EvaluationSums::zeros(source.batches(options.batch), records_ ? kRecordedStreams : 1,
                                  model.classes(), source.device())),
      graph_(source.device()) {
  options_.batch = options.batch;
  options_.margin = options.margin;
  options_.reconstruction = options.reconstruction;
  options_.bf16 = options.bf16;
  options_.kernels = options.kernels;
  options_.group = options.group;
}

Evaluation EvaluationPass::run() {
  pass();
  return read_back(sums_.of_all(options_.group), source_, options_.batch, model_.classes());
}

double EvaluationPass::loss() {
  pass();
  return mean_losses(sums_.of_all(options_.group).losses, source_, options_.batch).images;
}

void EvaluationPass::pass() {
  if (records_ && !graph_.recorded()) {
    work();  // work must have run once before it is recorded
    records_ = graph_.try_record("a pass", [this] { work(); });
  }
  records_ ? graph_.replay() : work();
}

void EvaluationPass::work() {
  sums_.confusion.zero_();
  add_batches(model_, source_, options_, sums_);
}

int64_t search_batch(const CapsNet& model, torch::Device device) {
  constexpr int64_t kPublished = 128, kLarge = 512, kBytes = int64_t{2} << 30;
  if (!device.is_cuda() || !model.images_are_independent()) return kPublished;
  const MemoryEstimate estimate = estimate_memory(model, kLarge);
  return estimate.activations + estimate.votes <= kBytes ? kLarge : kPublished;
}

double evaluate_margin_loss(CapsNet& model, const BatchSource& source,
                            const EvaluateOptions& options) {
  Tensor losses =
      torch::zeros({source.batches(options.batch)},
                   torch::TensorOptions().device(source.device()).dtype(torch::kFloat32));
  for_each_batch(model, source, options, ForwardOptions{}, /*streams=*/1,
                 [&](const Batch& batch, const Forward& forward, int64_t index, int64_t) {
                   losses[index].copy_(margin_loss(forward.activations, batch.labels,
                                                   options.margin, options.kernels));
                   if (options.on_progress)
                     options.on_progress(index * options.batch + batch.labels.size(0));
                 });
  if (options.group != nullptr) options.group->all_reduce_sum(losses);
  return mean_losses(losses, source, options.batch).images;
}

}  // namespace remcaps
