#include "remcaps/pruning/groups.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

// All dimensions but one.
std::vector<int64_t> dimensions_but(const Tensor& tensor, int64_t kept) {
  std::vector<int64_t> all(static_cast<size_t>(tensor.dim()));
  std::iota(all.begin(), all.end(), 0);
  all.erase(all.begin() + kept);
  return all;
}

Tensor squared_norms(const Tensor& values, int64_t of) {
  return values.square().sum(dimensions_but(values, of), /*keepdim=*/false, torch::kDouble);
}

// [n] as numbers for the slices of dimension `of`, in a shape that broadcasts to the tensor's.
Tensor for_slices(const Tensor& numbers, const Tensor& tensor, int64_t of) {
  std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1);
  shape[static_cast<size_t>(of)] = numbers.numel();
  return numbers.to(torch::kFloat32).view(shape);
}

// [types] -> [types * dim].
Tensor for_components(const Tensor& of_types, int64_t filters) {
  return of_types.unsqueeze(1).expand({-1, filters / of_types.numel()}).reshape({filters});
}

Tensor insensitivity(const Tensor& squared_norm) {
  return squared_norm.sqrt().neg_().add_(1).clamp_min_(0);
}

// Square roots, in units of their root mean square.
Tensor in_means(const Tensor& squares) {
  return (squares / squares.mean().clamp_min(std::numeric_limits<double>::min())).sqrt();
}

const NamedTensor* find(const std::vector<NamedTensor>& tensors, const Tensor& tensor) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& each) {
    return each.tensor.is_same(tensor);
  });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<std::string>& weight_group_names() {
  static const std::vector<std::string> names = {"capsule", "type", "place", "filter", "channel"};
  return names;
}

WeightGroups::WeightGroups(const PrunableNetwork& network, const std::vector<NamedTensor>& weights,
                           const std::vector<std::string>& kinds) {
  std::vector<NamedTensor> convolutions;
  for (const NamedTensor& weight : weights) {
    bool of_capsules = false;
    if (network.network != nullptr)
      for (const RoutingLayer& layer : network.network->routing_layers())
        of_capsules = of_capsules || selects(layer.name, weight.name);
    if (weight.tensor.dim() == 4 && !of_capsules) convolutions.push_back(weight);
  }
  for (const std::string& kind : kinds) {
    if (kind == "filter") {
      filters_ = convolutions;
    } else if (kind == "channel") {
      // One channel: the convolution is depthwise or reads grey images.
      for (const NamedTensor& weight : convolutions)
        if (weight.tensor.size(1) > 1) channels_.push_back(weight);
    } else {
      add_capsules(network, weights,
                   kind == "capsule" ? CapsuleGroup::kCapsule
                   : kind == "type"  ? CapsuleGroup::kType
                                     : CapsuleGroup::kPlace);
    }
  }
}

void WeightGroups::add_capsules(const PrunableNetwork& network,
                                const std::vector<NamedTensor>& weights, CapsuleGroup group) {
  if (network.network == nullptr)
    throw UsageError("pruning.groups: groups of capsules need a network of this library");
  const FcCapsImpl& layer = prunable_class_layer(*network.network);
  const NamedTensor* matrices = find(weights, layer.weight);
  if (matrices == nullptr)
    throw UsageError(fmt::format(
        "pruning.groups: groups of capsules need the matrices of the class layer of {}, which "
        "pruning.layers or pruning.exclude leave out",
        network.name));
  matrices_ = *matrices;
  bias_ = layer.routing_parameter;
  if (const PrimaryCapsImpl* primary = class_children(*network.network)) {
    if (const NamedTensor* makers = find(weights, primary->conv->weight)) {
      makers_ = *makers;
      types_ = primary->options.types();
    }
  }
  Partition partition{.members = {}, .of_types = group == CapsuleGroup::kType};
  if (group != CapsuleGroup::kCapsule) {
    const Tensor of =
        capsule_groups(network.network->class_grids(), group, layer.options.children());
    partition.members =
        torch::one_hot(of).t().to(matrices_.tensor.options().dtype(torch::kDouble)).contiguous();
  }
  partitions_.push_back(partition);
}

Tensor WeightGroups::Partition::sums(const Tensor& of_children) const {
  return members.defined() ? members.mv(of_children) : of_children;
}

Tensor WeightGroups::Partition::means(const Tensor& of_children) const {
  return members.defined() ? members.mv(of_children) / members.sum(1) : of_children;
}

Tensor WeightGroups::Partition::spread(const Tensor& of_groups) const {
  return members.defined() ? members.t().mv(of_groups) : of_groups;
}

void WeightGroups::shrink(double lambda) const {
  const torch::NoGradGuard no_grad;
  const auto shrink_slices = [&](const Tensor& weight, int64_t of, const Tensor& share) {
    Tensor target = weight;
    target.mul_(for_slices(1 - lambda * share, weight, of));
  };
  const auto shrink_each = [&](const std::vector<NamedTensor>& weights, int64_t of) {
    for (const auto& [name, weight] : weights)
      if (weight.grad().defined())
        shrink_slices(weight, of, insensitivity(squared_norms(weight.grad(), of)));
  };
  shrink_each(filters_, 0);
  shrink_each(channels_, 1);
  if (!has_capsules() || !matrices_.tensor.grad().defined()) return;
  const Tensor of_children = squared_norms(matrices_.tensor.grad(), 0);
  const bool with_makers = makers_.tensor.defined() && makers_.tensor.grad().defined();
  Tensor share = torch::zeros_like(of_children);
  for (const Partition& partition : partitions_) {
    Tensor squared = partition.sums(of_children);
    if (partition.of_types && with_makers) {
      const Tensor of_filters = squared_norms(makers_.tensor.grad(), 0);
      squared = squared + of_filters.view({types_, -1}).sum(1);
      shrink_slices(makers_.tensor, 0, for_components(insensitivity(squared), of_filters.numel()));
    }
    share += partition.spread(insensitivity(squared));
  }
  shrink_slices(matrices_.tensor, 0, share);
}

GroupedWeights WeightGroups::sizes(const std::optional<GivenVotes>& given) const {
  const torch::NoGradGuard no_grad;
  GroupedWeights groups;
  const auto limit = [&](const NamedTensor& weight, const Tensor& sizes, int64_t of) {
    const Tensor shaped = for_slices(sizes, weight.tensor, of);
    Tensor& smallest = groups.sizes[weight.name];
    smallest = smallest.defined() ? torch::minimum(smallest, shaped) : shaped;
  };
  const auto limit_each = [&](const std::vector<NamedTensor>& weights, int64_t of) {
    for (const NamedTensor& weight : weights)
      limit(weight, in_means(squared_norms(weight.tensor, of)), of);
  };
  limit_each(filters_, 0);
  limit_each(channels_, 1);
  if (!has_capsules()) return groups;

  check(given.has_value(), "pruning.groups: groups of capsules need what the capsules give");
  const Tensor variance = given->variance.to(torch::kDouble);
  Tensor of_children;
  for (const Partition& partition : partitions_) {
    const Tensor sizes = partition.spread(in_means(partition.means(variance)));
    of_children = of_children.defined() ? torch::minimum(of_children, sizes) : sizes;
  }
  limit(matrices_, of_children, 0);
  if (makers_.tensor.defined())
    limit(makers_, for_components(of_children.view({types_, -1}).amax(1), makers_.tensor.size(0)),
          0);

  const Tensor as_float = of_children.to(torch::kFloat32);
  groups.on_apply = [bias = bias_, original = bias_.detach().clone(), mean = given->mean,
                     as_float](double threshold) {
    const Tensor gone = (as_float < threshold).to(mean.scalar_type()).view({-1, 1, 1});
    Tensor target = bias;
    target.copy_(original + (mean * gone).sum(0).to(original.scalar_type()));
  };
  return groups;
}

}  // namespace remcaps
