#include "remcaps/training/step.h"

#include <cmath>

#include "remcaps/capsule/divided_batch.h"
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

TrainingStep::TrainingStep(const Recipe& recipe, CapsNet& model, torch::Device device,
                           ProcessGroup* group)
    : recipe_(recipe),
      model_(model),
      device_(device),
      group_(group),
      adam_(make_adam(recipe, model)),
      pruner_(pruner_of(recipe)) {}

bool TrainingStep::run(const Batch& batch, int64_t position, PruningContext& context,
                       EpochSums& sums) {
  if (group_ != nullptr) return run_share(batch, position, context, sums);
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

bool TrainingStep::run_share(const Batch& batch, int64_t position, PruningContext& context,
                             EpochSums& sums) {
  // The forward pass updates the averages of batch norms.
  std::vector<Tensor> before;
  for (const Tensor& buffer : model_.buffers()) before.push_back(buffer.clone());
  Tensor totals;
  try {
    totals = share_gradients(batch, context.epoch, /*mixed_precision=*/true);
  } catch (const PeerLost&) {
    const torch::NoGradGuard no_grad;
    for (size_t k = 0; k < before.size(); ++k) model_.buffers()[k].copy_(before[k]);
    throw;
  }
  if (device_.is_cpu() && !std::isfinite(totals[0].item<double>())) return false;
  update(context);
  sums.add_totals(totals, batch.whole, torch::full({1}, position, sums.bad_step.options()));
  sums.images += batch.whole;
  return true;
}

Tensor TrainingStep::share_gradients(const Batch& batch, int64_t epoch, bool mixed_precision) {
  adam_.zero_grad();
  // A batch that every process has as a whole is not divided.
  const bool divided = batch.labels.size(0) < batch.whole;
  const DividedBatch statistics(divided ? group_ : nullptr, batch.whole);
  const Forward made = mixed_precision ? training_forward(batch) : forward(batch);
  Tensor loss = loss_of(batch, made, epoch);
  if (batch.weight != 1) loss = loss * batch.weight;
  loss.backward();
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> sums, parameters;
  for (const auto& [name, parameter] : adam_.parameters()) {
    if (!parameter.grad().defined()) continue;
    parameters.push_back(parameter);
    sums.push_back(parameter.grad());
  }
  sums.push_back(EpochSums::totals(loss.detach(), made.activations.detach(), batch.labels,
                                   divided ? 1.0 : batch.weight));
  sums = group_->all_reduce_sums(std::move(sums));
  for (size_t k = 0; k < parameters.size(); ++k) parameters[k].mutable_grad() = sums[k];
  return sums.back();
}

void TrainingStep::run_on_device(const Batch& batch, const Tensor& position, const Tensor& numbers,
                                 const UpdateRule& rule, int64_t epoch, EpochSums& sums) {
  if (group_ != nullptr) {
    const Tensor totals = share_gradients(batch, epoch, /*mixed_precision=*/true);
    adam_.step(numbers, rule);
    return sums.add_totals(totals, batch.whole, position);
  }
  adam_.zero_grad();
  const Forward made = training_forward(batch);
  const Tensor loss = loss_of(batch, made, epoch);
  loss.backward();
  adam_.step(numbers, rule);
  sums.add_on_device(loss.detach(), made.activations.detach(), batch.labels, position);
}

void TrainingStep::make_gradients(const Batch& batch, int64_t epoch) {
  if (group_ != nullptr) {
    share_gradients(batch, epoch, /*mixed_precision=*/false);
    return;
  }
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
