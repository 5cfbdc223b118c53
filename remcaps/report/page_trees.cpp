#include "remcaps/report/page_trees.h"

#include <algorithm>
#include <map>
#include <set>

namespace remcaps {

namespace {

constexpr int64_t kBatch = 64;
constexpr size_t kShownOfATree = 8;
constexpr size_t kWrongImages = 24;
// Without trees there is nothing to choose by.
constexpr int64_t kFirstImages = 400;

// [C, H, W] -> [H, W, C]
std::vector<uint8_t> interleaved(const torch::Tensor& image) {
  const torch::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  const uint8_t* begin = pixels.data_ptr<uint8_t>();
  return {begin, begin + pixels.numel()};
}

}  // namespace

std::vector<float> prepared_images(const runtime::Network& network, const torch::Tensor& images) {
  std::vector<float> inputs;
  for (int64_t i = 0; i < images.size(0); ++i) {
    const std::vector<uint8_t> pixels = interleaved(images[i]);
    const std::vector<float> input =
        network.prepare({pixels.data(), images.size(2), images.size(3), images.size(1)});
    inputs.insert(inputs.end(), input.begin(), input.end());
  }
  return inputs;
}

PageTrees find_trees(const runtime::Network& network, const torch::Tensor& images,
                     const std::function<void(int64_t)>& on_progress) {
  PageTrees found;
  const size_t last = network.routing_layers().size() - 1;
  const bool quantized = network.routing_layers()[last].levels > 0;
  std::map<std::pair<int64_t, std::pair<uint64_t, uint64_t>>, std::vector<int64_t>> groups;
  const int64_t count = images.size(0);
  for (int64_t first = 0; first < count; first += kBatch) {
    const int64_t batch = std::min(kBatch, count - first);
    const std::vector<float> inputs =
        prepared_images(network, images.slice(0, first, first + batch));
    const runtime::Answer answer = network.run(inputs, {.couplings = true, .quantize = true});
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t predicted = answer.predicted(i);
      found.predicted.push_back(predicted);
      if (!quantized) continue;
      const KeyHash hash = hash_key(network.tree_key(answer, i, last));
      groups[{predicted, {hash.high, hash.low}}].push_back(first + i);
    }
    on_progress(first + batch);
  }
  for (auto& [key, places] : groups)
    found.trees.push_back(
        {key.first, {.low = key.second.second, .high = key.second.first}, std::move(places)});
  std::stable_sort(found.trees.begin(), found.trees.end(),
                   [](const TreeOfImages& a, const TreeOfImages& b) {
                     return a.class_index != b.class_index ? a.class_index < b.class_index
                                                           : a.images.size() > b.images.size();
                   });
  if (quantized) found.tree_of.resize(static_cast<size_t>(count));
  for (size_t t = 0; t < found.trees.size(); ++t)
    for (const int64_t place : found.trees[t].images)
      found.tree_of[static_cast<size_t>(place)] = static_cast<int64_t>(t);
  return found;
}

std::vector<int64_t> wanted_images(const std::vector<PageTrees>& networks,
                                   const torch::Tensor& labels) {
  std::vector<int64_t> wanted;
  std::set<int64_t> taken;
  const auto take = [&](int64_t place) {
    if (taken.insert(place).second) wanted.push_back(place);
  };
  const auto label = labels.accessor<int64_t, 1>();
  for (int64_t place = 0; place < labels.size(0) && wanted.size() < kWrongImages; ++place)
    if (std::any_of(networks.begin(), networks.end(), [&](const PageTrees& network) {
          return network.predicted[static_cast<size_t>(place)] != label[place];
        }))
      take(place);

  // Trees by their rank in their class: the most frequent one of every class, then the second.
  std::map<size_t, std::vector<const TreeOfImages*>> by_rank;
  for (const PageTrees& network : networks) {
    size_t rank = 0;
    for (size_t t = 0; t < network.trees.size(); ++t, ++rank) {
      const TreeOfImages& tree = network.trees[t];
      if (t > 0 && tree.class_index != network.trees[t - 1].class_index) rank = 0;
      by_rank[rank].push_back(&tree);
    }
  }
  for (const auto& [rank, trees] : by_rank)
    for (const TreeOfImages* tree : trees)
      for (size_t k = 0; k < std::min(kShownOfATree, tree->images.size()); ++k)
        take(tree->images[k]);
  if (by_rank.empty())
    for (int64_t place = 0; place < std::min(kFirstImages, labels.size(0)); ++place) take(place);
  return wanted;
}

}  // namespace remcaps
