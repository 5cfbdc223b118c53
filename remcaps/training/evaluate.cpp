#include "remcaps/training/evaluate.h"

#include "remcaps/base/torch_compat.h"

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

torch::TensorOptions doubles(const Tensor& like) {
  return torch::TensorOptions().device(like.device()).dtype(torch::kFloat64);
}

}  // namespace

Evaluation evaluate(CapsNet& model, const BatchSource& source, const EvaluateOptions& options) {
  const int64_t classes = model.classes();
  const bool reconstruct = options.reconstruction > 0 && model.has_decoder();
  ForwardOptions forward_options = options.forward;
  forward_options.reconstruct = forward_options.reconstruct || reconstruct;

  Tensor loss_sum, batch_loss_sum, confusion;
  for_each_batch(
      model, source, options, forward_options,
      [&](const Batch& batch, const Forward& forward, int64_t first) {
        const int64_t count = batch.labels.size(0);
        if (first == 0) {
          loss_sum = torch::zeros({}, doubles(batch.images));
          batch_loss_sum = torch::zeros({}, doubles(batch.images));
          confusion = torch::zeros({classes * classes}, batch.labels.options());
        }
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

  Evaluation result;
  result.samples = source.size();
  const Tensor sums = torch::stack({loss_sum, batch_loss_sum}).cpu();
  result.loss = sums[0].item<double>() / static_cast<double>(result.samples);
  result.batch_mean_loss =
      sums[1].item<double>() / static_cast<double>(source.batches(options.batch));
  result.confusion = confusion.view({classes, classes}).cpu();
  result.accuracy = static_cast<double>(result.confusion.diagonal().sum().item<int64_t>()) /
                    static_cast<double>(result.samples);
  return result;
}

double evaluate_margin_loss(CapsNet& model, const BatchSource& source,
                            const EvaluateOptions& options) {
  Tensor sum;
  for_each_batch(model, source, options, ForwardOptions{},
                 [&](const Batch& batch, const Forward& forward, int64_t first) {
                   if (first == 0) sum = torch::zeros({}, doubles(batch.images));
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
