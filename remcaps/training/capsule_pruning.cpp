#include "remcaps/training/capsule_pruning.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "remcaps/base/error.h"
#include "remcaps/base/random.h"
#include "remcaps/capsule/primary_caps.h"
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
  const std::vector<double> bits = trees.entropy_per_class();
  numbers.entropy = std::accumulate(bits.begin(), bits.end(), 0.0) / static_cast<double>(classes);
  return numbers;
}

// The group of each child, int64 [I].
Tensor groups_of(const std::vector<CapsuleGrid>& grids, CapsuleGroup group, int64_t children) {
  if (group == CapsuleGroup::kCapsule) return torch::arange(children);
  Tensor of = torch::full({children}, -1, torch::kLong);
  int64_t* values = of.data_ptr<int64_t>();
  int64_t first = 0;
  for (const CapsuleGrid& grid : grids) {
    for (int64_t type = 0; type < grid.types; ++type)
      for (int64_t y = 0; y < grid.height; ++y)
        for (int64_t x = 0; x < grid.width; ++x)
          values[grid.offset + type * grid.stride_type + y * grid.stride_y + x * grid.stride_x] =
              first + (group == CapsuleGroup::kType ? type : y * grid.width + x);
    first += group == CapsuleGroup::kType ? grid.types : grid.height * grid.width;
  }
  if (of.lt(0).any().item<bool>())
    throw UsageError("--group type or place: the capsules of this network lie on no grid");
  return of;
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
void silence_filters(CapsNet& model, const Tensor& kept, int64_t children) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    auto* primary = module->as<PrimaryCapsImpl>();
    if (primary == nullptr) continue;
    const int64_t types = primary->options.types(), dim = primary->options.dim();
    if (children % types != 0) return;
    const Tensor heard = torch::zeros({types}, torch::kBool)
                             .index_fill_(0, kept.div(children / types, "floor"), true)
                             .repeat_interleave(dim);
    for (Tensor& parameter : primary->conv->parameters())
      parameter.index_fill_(0, heard.logical_not().nonzero().squeeze(1), 0);
    return;
  }
}

}  // namespace

FcCapsImpl& prunable_class_layer(const CapsNet& model) {
  model.require_routing();
  const RoutingLayer last = model.routing_layers().back();
  const auto modules = model.named_modules();
  const auto* found = modules.find(last.name);
  auto* layer = found == nullptr ? nullptr : (*found)->as<FcCapsImpl>();
  if (layer == nullptr || layer->options.shared_over() != 1 ||
      layer->options.routing()->name() != "dynamic" || !layer->routing_parameter.defined())
    throw UsageError(fmt::format(
        "{}: whole capsules can be taken out of class layers with dynamic routing, a bias and a "
        "matrix for every child and parent; its class layer is none",
        model.name()));
  return *layer;
}

std::vector<CapsuleGrid> class_layer_grids(CapsNet& model) {
  const torch::NoGradGuard no_grad;
  const ImageShape input = model.input();
  ForwardOptions options;
  options.trace = true;
  const Tensor weight = model.parameters().front();
  return model
      .forward(torch::zeros({1, input.channels, input.height, input.width}, weight.options()),
               options)
      .routings.back()
      .grids;
}

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
  const int64_t count = layer.options.children(), parents = layer.options.parents(),
                dim = layer.options.parent_dim();
  Tensor sum = torch::zeros({count, parents, dim}, torch::kDouble), squares = sum.clone();
  const Tensor matrices = layer.weight.permute({0, 3, 1, 2}).flatten(2);  // [I, Din, J * Dout]
  for_each_part(children, kVotesMeasured, [&](const Tensor& poses, const Tensor&) {
    const Tensor coupling = layer.forward(poses).coupling;  // [B, I, J]
    const Tensor votes =
        poses.transpose(0, 1).bmm(matrices).view({count, poses.size(0), parents, dim});
    const Tensor given = votes * coupling.transpose(0, 1).unsqueeze(-1);  // [I, B, J, Dout]
    sum += given.sum(1, /*keepdim=*/false, torch::kDouble);
    squares += given.square().sum(1, /*keepdim=*/false, torch::kDouble);
  });
  const auto images = static_cast<double>(children.labels.size(0));
  const Tensor mean = sum / images;
  return {mean, (squares / images - mean.square()).flatten(1).sum(1)};
}

std::vector<CapsulePruningTry> prune_capsules(
    CapsNet& model, const ChildCapsules& training, const ChildCapsules& validation,
    const std::vector<CapsuleGrid>& grids, const CapsulePruningOptions& options,
    const std::function<void(const CapsulePruningTry&)>& on_try) {
  FcCapsImpl& layer = prunable_class_layer(model);
  const int64_t children = layer.options.children();
  const Tensor all = torch::arange(children);
  State good{layer_of(layer, all), all, groups_of(grids, options.group, children), 0, training,
             validation,           {}};
  good.groups = good.group.max().item<int64_t>() + 1;
  std::vector<CapsulePruningTry> tries;
  const auto note = [&](const CapsulePruningTry& numbers) {
    tries.push_back(numbers);
    if (on_try) on_try(numbers);
  };
  good.numbers = measured(*good.layer, validation, good.groups, options);
  note(good.numbers);
  const double bound = good.numbers.loss * (1 + options.tolerance);
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
  if (model.routing_layers().size() == 1) {
    const Tensor alive = good.layer->weight.ne(0).flatten(1).any(1);
    silence_filters(model, good.kept.index({alive}), children);
  }
  return tries;
}

}  // namespace remcaps
