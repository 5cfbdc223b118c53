#include "remcaps/training/capsule_pruning.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "remcaps/base/error.h"
#include "remcaps/base/random.h"
#include "remcaps/base/statistics.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/parse_tree/dictionary.h"
#include "remcaps/pruning/threshold_search.h"
#include "remcaps/training/adam.h"

namespace remcaps {
namespace {

constexpr int64_t kMeasured = 512;      // images of a pass at once
constexpr int64_t kVotesMeasured = 64;  // fewer where all votes are held at once
constexpr int64_t kVotesSeen = 4096;    // images over which a gift's mean and variance are taken

// The class layer with some of its children only.
std::shared_ptr<FcCapsImpl> layer_of(const FcCapsImpl& layer, const Tensor& kept) {
  const torch::NoGradGuard no_grad;
  auto smaller = std::make_shared<FcCapsImpl>(FcCapsOptions(layer.options).children(kept.numel()));
  smaller->weight.copy_(layer.weight.index_select(0, kept));
  smaller->routing_parameter.copy_(layer.routing_parameter);
  smaller->eval();
  return smaller;
}

ChildCapsules some_of(const ChildCapsules& all, const Tensor& kept) {
  return {all.poses.index_select(1, kept), all.labels};
}

Tensor lengths(const Tensor& poses) {
  return poses.norm(2, -1);
}

// Calls `body(children [B, I, D] in float32, labels)` for all images.
template <typename Body>
void for_each_part(const ChildCapsules& all, int64_t size, const Body& body) {
  for (int64_t first = 0; first < all.labels.size(0); first += size)
    body(all.poses.slice(0, first, first + size).to(torch::kFloat32).contiguous(),
         all.labels.slice(0, first, first + size));
}

double loss_of(FcCapsImpl& layer, const ChildCapsules& all, const MarginOptions& margin) {
  const torch::NoGradGuard no_grad;
  double sum = 0;
  for_each_part(all, kMeasured, [&](const Tensor& children, const Tensor& labels) {
    const RoutingResult result = layer.forward(children, {.coupling = false});
    sum += margin_losses(lengths(result.poses), labels, margin).sum().item<double>();
  });
  return sum / static_cast<double>(all.labels.size(0));
}

CapsulePruningTry measured(FcCapsImpl& layer, const ChildCapsules& all, int64_t groups,
                           const CapsulePruningOptions& options) {
  const torch::NoGradGuard no_grad;
  layer.eval();
  const auto images = static_cast<double>(all.labels.size(0));
  CapsulePruningTry numbers{.groups = groups, .capsules = all.poses.size(1)};
  int64_t right = 0, right_quantized = 0;
  const int64_t classes = layer.options.parents();
  Dictionary trees(classes);
  for_each_part(all, kMeasured, [&](const Tensor& children, const Tensor& labels) {
    const Tensor plain = lengths(layer.forward(children, {.coupling = false}).poses);
    numbers.loss += margin_losses(plain, labels, options.margin).sum().item<double>() / images;
    right += plain.argmax(1).eq(labels).sum().item<int64_t>();
    if (!options.quantizer) return;
    const RoutingResult result = layer.forward(children, {.quantizer = options.quantizer});
    const Tensor predicted = lengths(result.poses).argmax(1);
    right_quantized += predicted.eq(labels).sum().item<int64_t>();
    add_keys(trees, couplings_to(result.coupling, predicted), *options.quantizer,
             predicted.cpu().contiguous());
  });
  numbers.accuracy = static_cast<double>(right) / images;
  if (!options.quantizer) return numbers;
  numbers.accuracy_quantized = static_cast<double>(right_quantized) / images;
  numbers.entropy = mean(trees.entropy_per_class());
  return numbers;
}

// The `count` groups whose gift varies most, among those that are still in: children [I'].
Tensor children_to_keep(const Tensor& variance, const Tensor& group, int64_t count) {
  const int64_t groups = group.max().item<int64_t>() + 1;
  const Tensor score =
      torch::zeros({groups}, torch::kDouble).index_add_(0, group, variance.to(torch::kDouble));
  const Tensor present = torch::zeros({groups}, torch::kBool).index_fill_(0, group, true);
  const Tensor order = std::get<1>(score.masked_fill(present.logical_not(), -1)
                                       .sort(/*stable=*/true, /*dim=*/0, /*descending=*/true));
  const Tensor stays =
      torch::zeros({groups}, torch::kBool).index_fill_(0, order.slice(0, 0, count), true);
  return stays.index_select(0, group).nonzero().squeeze(1);
}

void train_layer(FcCapsImpl& layer, const ChildCapsules& all,
                 const CapsulePruningOptions& options) {
  layer.train();
  Adam adam({{"weight", layer.weight}, {"bias", layer.routing_parameter}},
            {.kernels = KernelPath::kFused});
  const UpdateRule rule{.lambda = options.lambda, .shrunk = {"weight", "bias"}, .dead = {}};
  const int64_t images = all.labels.size(0);
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const double lr = options.lr * std::pow(options.lr_decay, static_cast<double>(epoch));
    const Tensor order =
        torch::tensor(random_permutation(images, options.seed, static_cast<uint64_t>(epoch)));
    for (int64_t first = 0; first < images; first += options.batch) {
      const Tensor chosen = order.slice(0, first, first + options.batch);
      const Tensor children = all.poses.index_select(0, chosen).to(torch::kFloat32);
      adam.zero_grad();
      margin_loss(lengths(layer.forward(children, {.coupling = false}).poses),
                  all.labels.index_select(0, chosen), options.margin)
          .backward();
      adam.step(lr, rule);
    }
  }
  layer.eval();
}

// A class layer that some children have been taken out of.
struct State {
  std::shared_ptr<FcCapsImpl> layer;
  Tensor kept;   // which children of the network it has
  Tensor group;  // their groups
  int64_t groups = 0;
  ChildCapsules training, validation;
  CapsulePruningTry numbers;
};

State with_fewer(const State& from, int64_t groups) {
  const torch::NoGradGuard no_grad;
  const ChildCapsules seen{from.training.poses.slice(0, 0, kVotesSeen),
                           from.training.labels.slice(0, 0, kVotesSeen)};
  const GivenVotes given = given_votes(*from.layer, seen);
  const Tensor stay = children_to_keep(given.variance, from.group, groups);
  const Tensor out = torch::ones({from.kept.numel()}, torch::kBool).index_fill_(0, stay, false);
  State state{layer_of(*from.layer, stay),
              from.kept.index_select(0, stay),
              from.group.index_select(0, stay),
              groups,
              some_of(from.training, stay),
              some_of(from.validation, stay),
              {}};
  state.layer->routing_parameter.add_(
      given.mean.index({out}).sum(0).to(state.layer->routing_parameter.scalar_type()));
  return state;
}

// The published search: the single weights below the largest threshold that does not raise the loss.
void prune_weights(State& state, const CapsulePruningOptions& options) {
  const torch::NoGradGuard no_grad;
  const Tensor magnitude = state.layer->weight.abs();
  search_threshold({{"weight", state.layer->weight}},
                   {magnitude.min().item<double>(), magnitude.mean().item<double>(),
                    magnitude.max().item<double>()},
                   [&] { return loss_of(*state.layer, state.validation, options.margin); }, {});
  state.numbers = measured(*state.layer, state.validation, state.groups, options);
}

// The filters of types without a capsule that is left say nothing any more.
void silence_filters(const CapsNet& model, const Tensor& kept, int64_t children) {
  PrimaryCapsImpl* primary = class_children(model);
  if (primary == nullptr) return;
  const int64_t types = primary->options.types(), dim = primary->options.dim();
  const Tensor heard = torch::zeros({types}, torch::kBool)
                           .index_fill_(0, kept.div(children / types, "floor"), true)
                           .repeat_interleave(dim);
  for (Tensor& parameter : primary->conv->parameters())
    parameter.index_fill_(0, heard.logical_not().nonzero().squeeze(1), 0);
}

}  // namespace

ChildCapsules child_capsules(CapsNet& model, const BatchSource& source,
                             const EvaluateOptions& options, int64_t limit) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const int64_t images = limit > 0 ? std::min(limit, source.size()) : source.size();
  ForwardOptions forward;
  forward.trace = true;
  ChildCapsules all;
  for (int64_t first = 0; first < images; first += options.batch) {
    const int64_t count = std::min(options.batch, images - first);
    const Batch batch = source.evaluation_batch(first, count);
    const EvaluationPrecision precision(options.bf16, batch.images.device());
    const Tensor poses = model.forward(batch.images, forward).routings.back().children.cpu();
    if (first == 0) {
      all.poses = torch::empty({images, poses.size(1), poses.size(2)}, torch::kHalf);
      all.labels = torch::empty({images}, torch::kLong);
    }
    all.poses.slice(0, first, first + count).copy_(poses);
    all.labels.slice(0, first, first + count).copy_(batch.labels);
    if (options.on_progress) options.on_progress(first + count);
  }
  return all;
}

GivenVotes given_votes(FcCapsImpl& layer, const ChildCapsules& children) {
  const torch::NoGradGuard no_grad;
  GivenVotesSums sums(layer);
  for_each_part(children, kVotesMeasured, [&](const Tensor& poses, const Tensor&) {
    sums.add(poses, layer.forward(poses).coupling);
  });
  return sums.result();
}

GivenVotes given_votes(CapsNet& model, const BatchSource& source, EvaluateOptions options) {
  GivenVotesSums sums(prunable_class_layer(model));
  options.batch = kVotesMeasured;
  options.forward.trace = true;
  options.on_batch = [&](const Batch&, const Forward& forward) {
    const RoutingTrace& trace = forward.routings.back();
    sums.add(trace.children.to(torch::kFloat32), trace.coupling.to(torch::kFloat32));
  };
  ProcessGroup* group = std::exchange(options.group, nullptr);
  evaluate(model, source, options);
  const GivenVotes given = sums.result();
  // Every process sees all images, but processors of different kinds round differently.
  if (group != nullptr)
    for (const Tensor& of_all : {given.mean, given.variance}) group->broadcast(of_all);
  return given;
}

std::vector<CapsulePruningTry> prune_capsules(
    CapsNet& model, const ChildCapsules& training, const ChildCapsules& validation,
    const std::vector<CapsuleGrid>& grids, const CapsulePruningOptions& options,
    const std::function<void(const CapsulePruningTry&)>& on_try) {
  FcCapsImpl& layer = prunable_class_layer(model);
  const int64_t children = layer.options.children();
  const Tensor all = torch::arange(children);
  State good{layer_of(layer, all), all, capsule_groups(grids, options.group, children), 0, training,
             validation,           {}};
  good.groups = good.group.max().item<int64_t>() + 1;
  std::vector<CapsulePruningTry> tries;
  const auto note = [&](const CapsulePruningTry& numbers) {
    tries.push_back(numbers);
    if (on_try) on_try(numbers);
  };
  good.numbers = measured(*good.layer, validation, good.groups, options);
  note(good.numbers);
  double bound = good.numbers.loss * (1 + options.tolerance);
  const int64_t least = std::clamp(options.least, int64_t{1}, good.groups);

  int64_t failed = least - 1;  // too few, as far as is known
  bool any_failed = false;
  while (good.groups > least && good.groups - failed > std::max<int64_t>(1, good.groups / 20)) {
    const int64_t middle =
        any_failed ? (good.groups + failed) / 2
                   : static_cast<int64_t>(static_cast<double>(good.groups) * options.step);
    const int64_t groups = std::clamp(middle, least, good.groups - 1);
    State state = with_fewer(good, groups);
    train_layer(*state.layer, state.training, options);
    state.numbers = measured(*state.layer, state.validation, groups, options);
    state.numbers.within = state.numbers.loss <= bound;
    note(state.numbers);
    if (state.numbers.within) {
      // Training can find a better network than the first one, which must not be lost again.
      bound = std::min(bound, state.numbers.loss * (1 + options.tolerance));
      good = std::move(state);
    } else {
      failed = groups;
      any_failed = true;
    }
  }
  prune_weights(good, options);
  note(good.numbers);

  const torch::NoGradGuard no_grad;
  layer.weight.zero_().index_copy_(0, good.kept, good.layer->weight);
  layer.routing_parameter.copy_(good.layer->routing_parameter);
  const Tensor alive = good.layer->weight.ne(0).flatten(1).any(1);
  silence_filters(model, good.kept.index({alive}), children);
  return tries;
}

}  // namespace remcaps
