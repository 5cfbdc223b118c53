#include "remcaps/explain/tree_graph.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/backtrack.h"

namespace remcaps {

namespace {

std::vector<std::string> layer_names(const std::vector<RoutingTrace>& routings, size_t first) {
  std::vector<std::string> names = {first == 0 ? "primary" : routings[first - 1].layer};
  for (size_t l = first; l < routings.size(); ++l) names.push_back(routings[l].layer);
  return names;
}

// [B, n_l] of each layer of the tree.
std::vector<Tensor> layer_activations(const Forward& forward, size_t first) {
  std::vector<Tensor> activations;
  for (size_t l = first; l < forward.routings.size(); ++l)
    activations.push_back(forward.routings[l].child_activations);
  activations.push_back(forward.activations);
  return activations;
}

std::vector<std::vector<CapsuleGrid>> layer_grids(const Forward& forward, size_t first) {
  std::vector<std::vector<CapsuleGrid>> grids;
  for (size_t l = first; l < forward.routings.size(); ++l)
    grids.push_back(forward.routings[l].grids);
  return grids;
}

// A quantized coupling is a float. The level 0.1 of a child without a preference is 0.1F, which is
// above 1/10 but must not count as such.
constexpr double kRounding = 1e-6;

Tensor on_cpu(const Tensor& values) {
  return values.to(torch::kCPU, torch::kDouble).contiguous();
}

}  // namespace

size_t first_tree_layer(const std::vector<RoutingTrace>& routings) {
  check(!routings.empty() && !routings.back().convolutional(),
        "a parse tree needs fully connected class capsules and their couplings");
  size_t first = routings.size() - 1;
  while (first > 0 && !routings[first - 1].convolutional() &&
         routings[first - 1].coupling.size(2) == routings[first].child_activations.size(1))
    --first;
  return first;
}

CapsuleLayers capsule_layers(const Forward& forward, int64_t image) {
  const size_t first = first_tree_layer(forward.routings);
  CapsuleLayers layers;
  layers.names = layer_names(forward.routings, first);
  layers.grids = layer_grids(forward, first);
  for (const Tensor& activation : layer_activations(forward, first))
    layers.activations.push_back(on_cpu(activation[image]));
  for (size_t l = first; l < forward.routings.size(); ++l)
    layers.couplings.push_back(on_cpu(forward.routings[l].coupling[image]));
  if (!forward.routings[first].contribution.defined()) return layers;
  for (size_t l = first; l < forward.routings.size(); ++l) {
    const Tensor contribution = on_cpu(forward.routings[l].contribution[image]);  // [n_l, n_(l+1)]
    const Tensor evidence =
        contribution.sum(0) + on_cpu(forward.routings[l].bias_contribution[image]);
    layers.shares.push_back(contribution / evidence.clamp_min(1e-12));
  }
  return layers;
}

int64_t ParseTree::nodes_in_tree() const {
  int64_t count = 0;
  for (const auto& layer : layers)
    count += std::count_if(layer.begin(), layer.end(), [](const TreeNode& n) { return n.in_tree; });
  return count;
}

ParseTree parse_tree(const CapsuleLayers& layers, const std::vector<int64_t>& roots,
                     const TreeOptions& options) {
  const bool contributions = options.of == TreeOf::kContributions;
  check(!contributions || !layers.shares.empty(),
        "a parse tree of contributions is of one image; a mean over images has couplings only");
  const std::vector<Tensor>& strengths = contributions ? layers.shares : layers.couplings;
  ParseTree tree;
  tree.of = options.of;
  std::vector<Tensor> counting;  // bool [n_l, n_(l+1)]: the connections that count
  tree.names = layers.names;
  tree.grids = layers.grids;
  tree.roots = roots;
  const size_t depth = layers.activations.size();
  for (size_t l = 0; l < depth; ++l) {
    std::vector<TreeNode> nodes(static_cast<size_t>(layers.size(l)));
    const auto activation = layers.activations[l].accessor<double, 1>();
    for (size_t n = 0; n < nodes.size(); ++n)
      nodes[n].activation = activation[static_cast<int64_t>(n)];
    const double threshold = options.threshold.value_or(1.0 / static_cast<double>(layers.size(l)));
    if (l > 0) {
      const Tensor& below = strengths[l - 1];
      counting.push_back(contributions && !options.threshold ? carries_half(below.t()).t()
                                                             : below.gt(threshold + kRounding));
      const Tensor degrees = counting.back().sum(0);  // [n_l]
      for (size_t n = 0; n < nodes.size(); ++n)
        nodes[n].in_degree = degrees[static_cast<int64_t>(n)].item<int64_t>();
    }
    tree.thresholds.push_back(threshold);
    tree.layers.push_back(std::move(nodes));
  }
  for (const int64_t root : roots) {
    check(root >= 0 && root < layers.size(depth - 1), "class {} of a network with {}", root,
          layers.size(depth - 1));
    tree.layers.back()[static_cast<size_t>(root)].in_tree = true;
  }
  for (size_t l = depth - 1; l-- > 0;) {
    const auto strengths_of = strengths[l].accessor<double, 2>();
    const auto counts_of = counting[l].accessor<bool, 2>();
    for (int64_t j = 0; j < layers.size(l); ++j) {
      TreeNode& node = tree.layers[l][static_cast<size_t>(j)];
      if (l > 0 && node.in_degree == 0) continue;
      for (int64_t k = 0; k < layers.size(l + 1); ++k) {
        const double strength = strengths_of[j][k];
        const bool counts = counts_of[j][k];
        if (!tree.layers[l + 1][static_cast<size_t>(k)].in_tree) continue;
        if (!counts && !(options.weak_edges && strength > 0)) continue;
        // A connection too weak to count is not followed: what is below it is another tree.
        node.in_tree = node.in_tree || counts;
        tree.edges.push_back({static_cast<int64_t>(l), j, k,
                              layers.couplings[l][j][k].item<double>(),
                              contributions ? strength : 0});
      }
    }
  }
  return tree;
}

void TreeAverage::add(const Forward& forward) {
  const torch::NoGradGuard no_grad;
  const size_t first = first_tree_layer(forward.routings);
  const std::vector<Tensor> activations = layer_activations(forward, first);
  const Tensor classes = predicted_classes(forward);
  const int64_t class_count = forward.activations.size(1);
  const auto sums = forward.activations.options().dtype(torch::kDouble).requires_grad(false);
  if (names_.empty()) {
    names_ = layer_names(forward.routings, first);
    grids_ = layer_grids(forward, first);
    count_ = torch::zeros({class_count}, sums.dtype(torch::kLong));
    for (const Tensor& activation : activations)
      activations_.push_back(torch::zeros({class_count, activation.size(1)}, sums));
    for (size_t l = 0; l + 1 < activations.size(); ++l) {
      const Tensor& coupling = forward.routings[first + l].coupling;
      couplings_.push_back(torch::zeros({class_count, coupling.size(1), coupling.size(2)}, sums));
    }
  }
  count_.index_add_(0, classes, torch::ones_like(classes));
  for (size_t l = 0; l < activations_.size(); ++l)
    activations_[l].index_add_(0, classes, activations[l].detach().to(torch::kDouble));
  for (size_t l = 0; l < couplings_.size(); ++l)
    couplings_[l].index_add_(0, classes, forward.routings[first + l].coupling.to(torch::kDouble));
}

int64_t TreeAverage::images() const {
  return count_.defined() ? count_.sum().item<int64_t>() : 0;
}

std::vector<int64_t> TreeAverage::images_per_class() const {
  if (!count_.defined()) return {};
  const Tensor count = count_.cpu();
  return {count.data_ptr<int64_t>(), count.data_ptr<int64_t>() + count.size(0)};
}

CapsuleLayers TreeAverage::mean(const std::function<Tensor(const Tensor&)>& pick,
                                double images) const {
  CapsuleLayers layers;
  layers.names = names_;
  layers.grids = grids_;
  for (const Tensor& sum : activations_) layers.activations.push_back(on_cpu(pick(sum) / images));
  for (const Tensor& sum : couplings_) layers.couplings.push_back(on_cpu(pick(sum) / images));
  return layers;
}

CapsuleLayers TreeAverage::of_class(int64_t class_index) const {
  check(count_.defined() && class_index >= 0 && class_index < count_.size(0) &&
            count_[class_index].item<int64_t>() > 0,
        "no image was predicted as class {}", class_index);
  return mean([&](const Tensor& sum) { return sum[class_index]; },
              static_cast<double>(count_[class_index].item<int64_t>()));
}

CapsuleLayers TreeAverage::of_all() const {
  check(images() > 0, "a mean parse tree of no images");
  return mean([](const Tensor& sum) { return sum.sum(0); }, static_cast<double>(images()));
}

}  // namespace remcaps
