#include "remcaps/pruning/masks.h"

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"

namespace remcaps {

namespace {
const std::string kPrefix = "mask/";
}

void Masks::bind(const PrunableNetwork& network, const PruningScope& scope) {
  if (bound()) return;
  const torch::NoGradGuard no_grad;
  weights_ = prunable_weights(network, scope);
  for (const NamedTensor& weight : weights_) {
    const auto saved = loaded_.find(kPrefix + weight.name);
    if (saved == loaded_.end()) {
      dead_.push_back(torch::zeros_like(weight.tensor, torch::kBool));
      continue;
    }
    check(saved->second.sizes() == weight.tensor.sizes(),
          "checkpoint: the mask of {} has the shape [{}]; the weight has [{}]", weight.name,
          fmt::join(saved->second.sizes(), ", "), fmt::join(weight.tensor.sizes(), ", "));
    dead_.push_back(saved->second.to(weight.tensor.device()) == 0);
  }
  loaded_.clear();
  count();
  apply();
}

int64_t Masks::total() const {
  int64_t total = 0;
  for (const NamedTensor& weight : weights_) total += weight.tensor.numel();
  return total;
}

void Masks::prune_zeros() {
  const torch::NoGradGuard no_grad;
  for (size_t k = 0; k < weights_.size(); ++k) dead_[k].logical_or_(weights_[k].tensor == 0);
  count();
}

void Masks::keep_highest(const torch::Tensor& scores, int64_t keep) {
  const torch::NoGradGuard no_grad;
  check(scores.numel() == total(), "pruning: {} scores for {} weights", with_commas(scores.numel()),
        with_commas(total()));
  // A stable sort: the choice among equal scores does not depend on the device.
  const torch::Tensor order =
      std::get<1>(torch::sort(scores.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/true));
  torch::Tensor dead = torch::zeros_like(order, torch::kBool);
  dead.index_fill_(0, order.slice(0, keep), true);
  int64_t offset = 0;
  for (size_t k = 0; k < weights_.size(); ++k) {
    const int64_t size = weights_[k].tensor.numel();
    dead_[k].logical_or_(dead.slice(0, offset, offset + size).view(weights_[k].tensor.sizes()));
    offset += size;
  }
  count();
  apply();
}

void Masks::apply() {
  if (pruned_ == 0) return;
  const torch::NoGradGuard no_grad;
  for (size_t k = 0; k < weights_.size(); ++k) weights_[k].tensor.masked_fill_(dead_[k], 0);
}

std::map<std::string, torch::Tensor> Masks::dead() const {
  std::map<std::string, torch::Tensor> dead;
  if (pruned_ == 0) return dead;
  for (size_t k = 0; k < weights_.size(); ++k) dead[weights_[k].name] = dead_[k];
  return dead;
}

std::map<std::string, torch::Tensor> Masks::state() const {
  if (!bound()) return loaded_;
  std::map<std::string, torch::Tensor> state;
  for (size_t k = 0; k < weights_.size(); ++k)
    state[kPrefix + weights_[k].name] = dead_[k].logical_not().to(torch::kUInt8);
  return state;
}

void Masks::load_state(const std::map<std::string, torch::Tensor>& state) {
  weights_.clear();
  dead_.clear();
  loaded_.clear();
  for (const auto& [name, mask] : state)
    if (name.compare(0, kPrefix.size(), kPrefix) == 0) loaded_[name] = mask;
}

void Masks::count() {
  std::vector<torch::Tensor> sums;
  for (const torch::Tensor& dead : dead_) sums.push_back(dead.sum());
  pruned_ = sums.empty() ? 0 : torch::stack(sums).sum().item<int64_t>();  // one read-back
}

}  // namespace remcaps
