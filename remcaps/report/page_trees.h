// The dictionaries of a page in which one draws: the trees that the WebAssembly module finds.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

#include "remcaps/parse_tree/keys.h"
#include "remcaps/runtime/network.h"

namespace remcaps {

/// Images with the same parse tree.
struct TreeOfImages {
  int64_t class_index = 0;  ///< as which they are predicted
  KeyHash hash;
  std::vector<int64_t> images;  ///< places in the split
};

struct PageTrees {
  std::vector<int64_t> predicted;   ///< with quantized couplings, by image
  std::vector<TreeOfImages> trees;  ///< class by class, most frequent first
  std::vector<int64_t> tree_of;     ///< place in `trees`, by image
};

/// Images uint8 [N, C, H, W] as the network's input.
std::vector<float> prepared_images(const runtime::Network& network, const torch::Tensor& images);

/// Runs the network on images, uint8 [N, C, H, W]. A network without a quantizer at its last layer
/// has no trees.
PageTrees find_trees(const runtime::Network& network, const torch::Tensor& images,
                     const std::function<void(int64_t)>& on_progress);

/// The images a page should have, the most wanted first: some that a network gets wrong, then some
/// of each tree, frequent trees first and all classes alike. Without trees: the first ones.
std::vector<int64_t> wanted_images(const std::vector<PageTrees>& networks,
                                   const torch::Tensor& labels);

}  // namespace remcaps
