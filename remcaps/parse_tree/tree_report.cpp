#include "remcaps/parse_tree/tree_report.h"

#include <algorithm>

#include "remcaps/base/statistics.h"

namespace remcaps {

namespace {

// How many couplings of a key differ between two images of a class, for every class.
std::vector<int64_t> varying_couplings(const Dictionary& dictionary, int64_t couplings,
                                       int64_t levels) {
  std::vector<int64_t> varying;
  for (int64_t class_index = 0; class_index < dictionary.classes(); ++class_index) {
    const std::string& bits = dictionary.varying_bits(class_index);
    const auto differ = decode_key(bits, bits.empty() ? 0 : couplings, levels);
    varying.push_back(std::count_if(differ.begin(), differ.end(), [](uint8_t bit) { return bit; }));
  }
  return varying;
}

}  // namespace

void describe_dictionary(LayerTrees& trees, const Dictionary& dictionary, int64_t key_couplings,
                         int64_t levels) {
  trees.levels = levels;
  trees.entropy_per_class = dictionary.entropy_per_class();
  trees.keys_per_class = dictionary.keys_per_class();
  trees.entropy = mean(trees.entropy_per_class);
  trees.entropy_std = standard_deviation(trees.entropy_per_class);
  trees.median_keys = median(trees.keys_per_class);
  trees.key_couplings = key_couplings;
  trees.varying_per_class = varying_couplings(dictionary, key_couplings, levels);
  trees.median_varying = median(trees.varying_per_class);
  trees.unverified_keys = dictionary.unverified();
}

std::vector<std::vector<FrequentTree>> most_frequent_trees(const Dictionary& dictionary,
                                                           int64_t key_couplings, int64_t levels,
                                                           size_t limit) {
  std::vector<std::vector<FrequentTree>> of_classes;
  for (int64_t class_index = 0; class_index < dictionary.classes(); ++class_index) {
    auto& trees = of_classes.emplace_back();
    for (const Dictionary::Tree& tree : dictionary.most_frequent(class_index, limit)) {
      FrequentTree& listed = trees.emplace_back();
      listed.count = tree.count;
      if (!tree.key.empty()) listed.levels = decode_key(tree.key, key_couplings, levels);
    }
  }
  return of_classes;
}

}  // namespace remcaps
