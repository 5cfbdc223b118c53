#include "remcaps/training/step.h"

#include <cmath>

#include "remcaps/capsule/loss.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

Adam make_adam(const Recipe& recipe, const CapsNet& model) {
  Adam::NamedParameters parameters;
  for (const auto& item : model.named_parameters())
    parameters.emplace_back(item.key(), item.value());
  const TrainOptions& train = recipe.train;
  return {parameters,
          {.beta1 = train.beta1,
           .beta2 = train.beta2,
           .eps = train.eps,
           .kernels = recipe.kernel_path()}};
}

std::unique_ptr<Pruner> pruner_of(const Recipe& recipe) {
  ConfigSection section(YAML::Clone(recipe.pruning), recipe.name, "pruning");
  return make_pruner(section);
}

}  // namespace

TrainingStep::TrainingStep(const Recipe& recipe, CapsNet& model, torch::Device device)
    : recipe_(recipe),
      model_(model),
      device_(device),
      adam_(make_adam(recipe, model)),
      pruner_(pruner_of(recipe)) {}

bool TrainingStep::run(const Batch& batch, int64_t position, PruningContext& context,
                       EpochSums& sums) {
  adam_.zero_grad();
  const Forward made = training_forward(batch);
  mark(clock_, "forward");
  const Tensor loss = loss_of(batch, made, context.epoch);
  if (device_.is_cpu() && !std::isfinite(loss.item<double>())) return false;
  mark(clock_, "loss");
  loss.backward();
  mark(clock_, "backward");
  update(context);
  mark(clock_, "update");
  sums.add(loss.detach(), made.activations.detach(), batch.labels, position);
  mark(clock_, "sums");
  return true;
}

void TrainingStep::run_on_device(const Batch& batch, const Tensor& position, const Tensor& numbers,
                                 const UpdateRule& rule, int64_t epoch, EpochSums& sums) {
  adam_.zero_grad();
  const Forward made = training_forward(batch);
  const Tensor loss = loss_of(batch, made, epoch);
  loss.backward();
  adam_.step(numbers, rule);
  sums.add_on_device(loss.detach(), made.activations.detach(), batch.labels, position);
}

void TrainingStep::make_gradients(const Batch& batch, int64_t epoch) {
  adam_.zero_grad();
  loss_of(batch, forward(batch), epoch).backward();
}

Forward TrainingStep::training_forward(const Batch& batch) {
  // Not on a CPU: oneDNN's bfloat16 convolutions are not faster there, and crash on some CPUs.
  const Autocast autocast(recipe_.precision == "bf16" && device_.is_cuda(), device_);
  return forward(batch);
}

Forward TrainingStep::forward(const Batch& batch) {
  ForwardOptions options;
  options.labels = batch.labels;
  options.reconstruct = model_.has_decoder() && recipe_.loss.reconstruction > 0;
  return model_.forward(batch.images, options);
}

Tensor TrainingStep::loss_of(const Batch& batch, const Forward& forward, int64_t epoch) const {
  Tensor loss = margin_loss(forward.activations.to(torch::kFloat32), batch.labels,
                            recipe_.loss.margin(epoch), recipe_.kernel_path());
  if (forward.reconstruction.defined())
    loss = loss + recipe_.loss.reconstruction *
                      reconstruction_loss(forward.reconstruction.to(torch::kFloat32), batch.images);
  return loss;
}

void TrainingStep::update(PruningContext& context) {
  const double lr = recipe_.train.lr_at(context.epoch);
  if (adam_.one_pass()) {
    if (const auto rule = pruner_->update_rule(context)) return adam_.step(lr, *rule);
  }
  pruner_->after_backward(context);
  adam_.step(lr);
  pruner_->after_step(context);
}

}  // namespace remcaps
