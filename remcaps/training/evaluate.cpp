#include "remcaps/training/evaluate.h"

#include "remcaps/base/error.h"
#include "remcaps/base/torch_compat.h"
#include "remcaps/training/memory.h"

namespace remcaps {
namespace {

// Puts a network into evaluation mode, and back.
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

// Calls `body(batch, forward, first)` for every batch, in order.
template <typename Body>
void for_each_batch(CapsNet& model, const BatchSource& source, const EvaluateOptions& options,
                    const ForwardOptions& forward_options, const Body& body) {
  torch::NoGradGuard no_grad;
  EvaluationMode mode(model);
  for (int64_t first = 0; first < source.size(); first += options.batch) {
    const int64_t count = std::min(options.batch, source.size() - first);
    const Batch batch = source.evaluation_batch(first, count);
    mark(options.clock, "batch");
    Forward forward;
    {
      const torch::Device device = batch.images.device();
      const Autocast autocast(options.bf16 && device.is_cuda(), device);
      forward = model.forward(batch.images, forward_options);
    }
    forward.activations = forward.activations.to(torch::kFloat32);
    mark(options.clock, "forward");
    body(batch, forward, first);
    mark(options.clock, "sums");
  }
}

// The forward pass, loss and sums of every batch.
void add_batches(CapsNet& model, const BatchSource& source, const EvaluateOptions& options,
                 const EvaluationSums& sums) {
  const int64_t classes = model.classes();
  const bool reconstruct = options.reconstruction > 0 && model.has_decoder();
  ForwardOptions forward_options = options.forward;
  forward_options.reconstruct = forward_options.reconstruct || reconstruct;
  Tensor loss_sum = sums.losses[0], batch_loss_sum = sums.losses[1], confusion = sums.confusion;
  for_each_batch(
      model, source, options, forward_options,
      [&](const Batch& batch, const Forward& forward, int64_t first) {
        const int64_t count = batch.labels.size(0);
        Tensor loss =
            margin_loss(forward.activations, batch.labels, options.margin, options.kernels);
        if (reconstruct)
          loss = loss +
                 options.reconstruction *
                     reconstruction_loss(forward.reconstruction.to(torch::kFloat32), batch.images);
        loss = loss.to(torch::kFloat64);
        batch_loss_sum += loss;
        loss_sum += loss * count;
        const Tensor cell = batch.labels * classes + forward.activations.argmax(1);  // [B]
        confusion.scatter_add_(0, cell, torch::ones_like(cell));
        if (options.on_batch) options.on_batch(batch, forward);
        if (options.on_progress) options.on_progress(first + count);
      });
}

Evaluation read_back(const EvaluationSums& sums, const BatchSource& source, int64_t batch,
                     int64_t classes) {
  Evaluation result;
  result.samples = source.size();
  const Tensor losses = sums.losses.cpu();
  result.loss = losses[0].item<double>() / static_cast<double>(result.samples);
  result.batch_mean_loss = losses[1].item<double>() / static_cast<double>(source.batches(batch));
  result.confusion = sums.confusion.view({classes, classes}).cpu();
  result.accuracy = static_cast<double>(result.confusion.diagonal().sum().item<int64_t>()) /
                    static_cast<double>(result.samples);
  return result;
}

}  // namespace

EvaluationSums EvaluationSums::zeros(int64_t classes, torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  return {torch::zeros({2}, options.dtype(torch::kFloat64)),
          torch::zeros({classes * classes}, options.dtype(torch::kInt64))};
}

void EvaluationSums::reset() {
  losses.zero_();
  confusion.zero_();
}

Evaluation evaluate(CapsNet& model, const BatchSource& source, const EvaluateOptions& options) {
  const EvaluationSums sums = EvaluationSums::zeros(model.classes(), source.device());
  add_batches(model, source, options, sums);
  return read_back(sums, source, options.batch, model.classes());
}

EvaluationPass::EvaluationPass(CapsNet& model, const BatchSource& source,
                               const EvaluateOptions& options, bool record)
    : model_(model),
      source_(source),
      sums_(EvaluationSums::zeros(model.classes(), source.device())),
      graph_(source.device()),
      records_(record && has_device_graphs(source.device()) && source.stays_on_device()) {
  options_.batch = options.batch;
  options_.margin = options.margin;
  options_.reconstruction = options.reconstruction;
  options_.bf16 = options.bf16;
  options_.kernels = options.kernels;
}

Evaluation EvaluationPass::run() {
  pass();
  return read_back(sums_, source_, options_.batch, model_.classes());
}

double EvaluationPass::loss() {
  pass();
  return sums_.losses[0].item<double>() / static_cast<double>(source_.size());
}

void EvaluationPass::pass() {
  if (records_ && !graph_.recorded()) {
    work();  // what is recorded must have run before
    record();
  }
  records_ ? graph_.replay() : work();
}

void EvaluationPass::work() {
  sums_.reset();
  add_batches(model_, source_, options_, sums_);
}

void EvaluationPass::record() {
  try {
    graph_.record([this] { work(); });
  } catch (const std::exception& error) {
    records_ = false;
    graph_.clear();
    const std::string reason = error.what();
    fmt::print(stderr, "warning: a pass could not be recorded as a CUDA graph: {}\n",
               reason.substr(0, reason.find('\n')));
  }
}

int64_t search_batch(const CapsNet& model, torch::Device device) {
  constexpr int64_t kPublished = 128, kLarge = 512, kBytes = int64_t{2} << 30;
  if (!device.is_cuda() || !model.images_are_independent()) return kPublished;
  const MemoryEstimate estimate = estimate_memory(model, kLarge);
  return estimate.activations + estimate.votes <= kBytes ? kLarge : kPublished;
}

double evaluate_margin_loss(CapsNet& model, const BatchSource& source,
                            const EvaluateOptions& options) {
  Tensor sum =
      torch::zeros({}, torch::TensorOptions().device(source.device()).dtype(torch::kFloat64));
  for_each_batch(model, source, options, ForwardOptions{},
                 [&](const Batch& batch, const Forward& forward, int64_t) {
                   const Tensor loss = margin_loss(forward.activations, batch.labels,
                                                   options.margin, options.kernels);
                   sum += loss.to(torch::kFloat64) * batch.labels.size(0);
                 });
  return sum.item<double>() / static_cast<double>(source.size());
}

double evaluate_margin_loss(CapsNet& model, const BatchSource& source, const MarginOptions& margin,
                            int64_t batch) {
  EvaluateOptions options;
  options.margin = margin;
  options.batch = batch;
  return evaluate_margin_loss(model, source, options);
}

}  // namespace remcaps
