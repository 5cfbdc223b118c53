#include "remcaps/pruning/lobster_pruner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/pruning/threshold_search.h"

namespace remcaps {

namespace {
const std::string kPlateau = "plateau";
}

void bind(ConfigSection& section, LobsterOptions& options) {
  bind(section, options.scope);
  section.key("lambda", options.lambda, {0.0, 1.0});
  section.key("lambda_decay", options.lambda_decay, {0.0, 1.0});
  section.key("patience_epochs", options.patience_epochs, {-1, 1'000'000});
  section.key("plateau", options.plateau, {0.0, 1e6});
  section.key("tolerance", options.tolerance, {0.0, 1e6});
  section.key("min_accuracy", options.min_accuracy, {0.0, 1.0});
  section.key("above_chance", options.above_chance, {0.0, 1.0});
  section.key("groups", options.groups);
  for (const std::string& group : options.groups) {
    const auto& names = weight_group_names();
    if (std::find(names.begin(), names.end(), group) == names.end())
      section.reject("groups", group, fmt::format("some of {}", fmt::join(names, ", ")));
  }
  section.key("choose", options.choose, {"threshold", "entropy", "parts"});
  section.key("begin", options.begin, {0, 1'000'000'000});
  section.key("end", options.end, {-1, 1'000'000'000});
}

std::unique_ptr<Pruner> make_pruner(LobsterOptions options) {
  return std::make_unique<LobsterPruner>(std::move(options));
}

void lobster_shrink(torch::Tensor parameter, const torch::Tensor& gradient, double lambda) {
  const torch::NoGradGuard no_grad;
  torch::Tensor insensitivity = gradient.abs().neg_().add_(1).clamp_min_(0);
  parameter.sub_(insensitivity.mul_(parameter), lambda);
}

void LobsterPruner::bind_to(const PrunableNetwork& network) {
  if (masks_.bound()) return;
  masks_.bind(network, options_.scope);
  if (!options_.groups.empty()) groups_.emplace(network, masks_.weights(), options_.groups);
  shrunk_.clear();
  for (const NamedTensor& parameter : layer_parameters(network, options_.scope))
    if (parameter.tensor.requires_grad()) shrunk_.push_back(parameter);
}

void LobsterPruner::before_epoch(PruningContext& context) {
  bind_to(context.model);
  masks_.prune_zeros();
}

double LobsterPruner::lambda_at(int64_t epoch) const {
  return options_.lambda * std::pow(options_.lambda_decay, static_cast<double>(epoch));
}

void LobsterPruner::after_backward(PruningContext& context) {
  bind_to(context.model);
  const double lambda = lambda_at(context.epoch);
  if (lambda == 0) return;
  if (groups_) groups_->shrink(lambda);
  for (const auto& [name, parameter] : shrunk_)
    if (parameter.grad().defined()) lobster_shrink(parameter, parameter.grad(), lambda);
}

void LobsterPruner::after_step(PruningContext& context) {
  bind_to(context.model);
  masks_.apply();
}

std::optional<UpdateRule> LobsterPruner::update_rule(PruningContext& context) {
  bind_to(context.model);
  const double lambda = lambda_at(context.epoch);
  UpdateRule rule{.lambda = lambda, .shrunk = {}, .dead = masks_.dead()};
  if (groups_ && lambda > 0) rule.before = [this, lambda] { groups_->shrink(lambda); };
  for (const NamedTensor& parameter : shrunk_) rule.shrunk.insert(parameter.name);
  return rule;
}

bool LobsterPruner::search_is_due(const PruningContext& context, Plateau& plateau) const {
  if (context.epoch < options_.begin) return false;
  if (options_.end >= 0 && context.epoch > options_.end) return false;
  const double loss = context.epoch_validation_loss;
  const bool bad = loss > plateau.best_loss * (1 + options_.plateau);
  plateau.bad_epochs = bad ? plateau.bad_epochs + 1 : 0;
  plateau.best_loss = std::min(plateau.best_loss, loss);
  const double accuracy = context.epoch_validation_accuracy, chance = context.chance_accuracy;
  if (options_.min_accuracy > 0 && !(accuracy > options_.min_accuracy)) return false;
  if (options_.above_chance > 0 && accuracy < chance + options_.above_chance * (1 - chance))
    return false;
  return plateau.bad_epochs >= options_.patience_epochs;
}

PruningReport LobsterPruner::after_epoch(PruningContext& context) {
  bind_to(context.model);
  PruningReport report;
  Plateau plateau = plateau_;
  if (!search_is_due(context, plateau)) {
    plateau_ = plateau;
    return report;
  }
  const int64_t before = masks_.pruned();
  const SearchResult found = search(context);
  masks_.prune_zeros();
  plateau_ = {};  // the pruned network sets its own best loss
  report.pruned = masks_.pruned() > before;
  report.threshold = found.threshold;
  report.evaluations = found.evaluations;
  report.loss_before = found.base_loss;
  report.loss_after = found.loss;
  return report;
}

SearchResult LobsterPruner::search(PruningContext& context) {
  SearchOptions search{.tolerance = options_.tolerance};
  if (options_.choose == LobsterOptions::Choose::kEntropy)
    search.prefer_low = context.validation_entropy;
  if (options_.choose == LobsterOptions::Choose::kParts)
    search.prefer_low = context.validation_parts;
  check(options_.choose == LobsterOptions::Choose::kThreshold || search.prefer_low,
        "pruning.choose: nothing measures the parse trees of the validation images here");
  if (!groups_)
    return search_threshold(masks_.weights(), magnitude_range(context.model),
                            context.validation_loss, search);

  // A search that is stopped must leave all as it was, also what the search for groups has done.
  std::vector<torch::Tensor> before;
  for (const NamedTensor& parameter : context.model.parameters)
    before.push_back(parameter.tensor.detach().clone());
  try {
    std::optional<GivenVotes> given;
    if (groups_->has_capsules()) {
      check(static_cast<bool>(context.given_votes),
            "pruning.groups: nothing measures what capsules give here");
      given = context.given_votes();
    }
    const GroupedWeights groups = groups_->sizes(given);
    const SearchResult of_groups =
        search_threshold(masks_.weights(), groups.range(), context.validation_loss, search, groups);
    SearchResult found = search_threshold(masks_.weights(), magnitude_range(context.model),
                                          context.validation_loss, search);
    found.base_loss = of_groups.base_loss;
    found.evaluations += of_groups.evaluations;
    return found;
  } catch (...) {
    const torch::NoGradGuard no_grad;
    for (size_t k = 0; k < before.size(); ++k) context.model.parameters[k].tensor.copy_(before[k]);
    throw;
  }
}

std::map<std::string, torch::Tensor> LobsterPruner::state() const {
  auto state = masks_.state();
  state[kPlateau] =
      torch::tensor({plateau_.best_loss, static_cast<double>(plateau_.bad_epochs)}, torch::kDouble);
  return state;
}

void LobsterPruner::load_state(const std::map<std::string, torch::Tensor>& state) {
  masks_.load_state(state);
  const auto found = state.find(kPlateau);
  check(found != state.end(), "the pruner's state has no {}", kPlateau);
  const torch::Tensor& plateau = found->second;
  check(plateau.scalar_type() == torch::kDouble && plateau.sizes() == torch::IntArrayRef{2},
        "the pruner's {} is not two numbers", kPlateau);
  const double best = plateau[0].item<double>(), bad = plateau[1].item<double>();
  constexpr double kMostEpochs = 1e15;  // whole numbers up to here are exact
  check(!std::isnan(best) && bad >= 0 && bad <= kMostEpochs && std::trunc(bad) == bad,
        "the pruner's {} is {} and {}; expected a loss and a number of epochs", kPlateau, best,
        bad);
  plateau_ = {best, static_cast<int64_t>(bad)};
}

}  // namespace remcaps
