#include "remcaps/pruning/scheduled.h"

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/torch/random.h"

namespace remcaps {

void bind(ConfigSection& section, ScheduledOptions& options) {
  bind(section, options.scope);
  section.key("sparsity", options.sparsity, {0.0, 1.0});
  section.key("initial_sparsity", options.initial_sparsity, {0.0, 1.0});
  section.key("begin", options.begin, {0, 1'000'000'000});
  section.key("end", options.end, {0, 1'000'000'000});
  if (options.score == ScheduledOptions::Score::kRandom)
    section.key("seed", options.seed, {-1, 1'000'000'000});
  if (options.initial_sparsity > options.sparsity)
    section.reject("initial_sparsity", fmt::format("{}", options.initial_sparsity),
                   fmt::format("at most the target sparsity, {}", options.sparsity));
  if (options.begin > options.end)
    section.reject("begin", fmt::format("{}", options.begin),
                   fmt::format("at most end, {}", options.end));
}

double scheduled_sparsity(const ScheduledOptions& options, int64_t epochs) {
  if (epochs >= options.end) return options.sparsity;
  if (epochs < options.begin) return 0;
  const double left = 1 - static_cast<double>(epochs - options.begin) /
                              static_cast<double>(options.end - options.begin);
  return options.sparsity + (options.initial_sparsity - options.sparsity) * left * left * left;
}

torch::Tensor ScheduledPruner::scores(const PruningContext& context) const {
  const uint64_t seed = options_.seed < 0 ? context.seed : static_cast<uint64_t>(options_.seed);
  std::vector<torch::Tensor> scores;
  uint32_t draw = 0;
  for (const NamedTensor& weight : masks_.weights()) {
    if (options_.score == ScheduledOptions::Score::kMagnitude) {
      scores.push_back(weight.tensor.detach().abs().flatten());
      continue;
    }
    // A weight has the same number in every epoch, so the set of pruned weights only grows.
    const auto samples = torch::arange(weight.tensor.numel(),
                                       torch::dtype(torch::kInt64).device(weight.tensor.device()));
    scores.push_back(random_uniform(seed, RandomStream::kPruning, 0, samples, draw++));
  }
  return torch::cat(scores);
}

void ScheduledPruner::prune(const PruningContext& context, int64_t epochs) {
  masks_.bind(context.model, options_.scope);
  const double total = static_cast<double>(masks_.total());
  const int64_t keep = std::llround(total * (1 - scheduled_sparsity(options_, epochs)));
  if (keep < masks_.total() - masks_.pruned()) masks_.keep_highest(scores(context), keep);
}

void ScheduledPruner::after_step(PruningContext& context) {
  masks_.bind(context.model, options_.scope);
  masks_.apply();
}

std::optional<UpdateRule> ScheduledPruner::update_rule(PruningContext& context) {
  masks_.bind(context.model, options_.scope);
  return UpdateRule{.lambda = 0, .shrunk = {}, .dead = masks_.dead()};
}

PruningReport ScheduledPruner::after_epoch(PruningContext& context) {
  const int64_t before = masks_.pruned();
  prune(context, context.epoch + 1);
  PruningReport report;
  report.pruned = masks_.pruned() > before;
  return report;
}

}  // namespace remcaps
