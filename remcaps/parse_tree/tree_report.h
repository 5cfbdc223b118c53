// What the parse trees of a data set come to: entropy, keys and scores of each routing layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remcaps/parse_tree/dictionary.h"

namespace remcaps {

/// One routing layer's couplings over a data set.
struct LayerTrees {
  std::string layer;
  int64_t levels = 0;      ///< K; 0: not quantized, and everything up to unverified_keys is empty
  double entropy = 0;      ///< bits, mean over classes
  double entropy_std = 0;  ///< standard deviation over classes: the published +-
  std::vector<double> entropy_per_class;
  std::vector<int64_t> keys_per_class;
  double median_keys = 0;
  /// How many couplings of a key differ between two images of the class.
  std::vector<int64_t> varying_per_class;
  double median_varying = 0;
  int64_t key_couplings = 0;    ///< couplings of one key
  int64_t unverified_keys = 0;  ///< distinct keys known by their 128-bit hash alone

  int64_t clamped = 0;    ///< couplings that lay outside [0, 1]
  int64_t couplings = 0;  ///< all couplings that were seen

  /// gamma-CapsNet's scores, from the couplings and activations before quantization.
  /// T: 1 - mean_i H(c_i) / ln J. It is 1 if every child has one parent.
  std::optional<double> t_score;
  /// D: the largest standard deviation of ||v_j|| over the images, of all parents j. Nothing if the
  /// network does not show ||v_j||.
  std::optional<double> d_score;
};

struct FrequentTree {
  int64_t count = 0;
  std::vector<uint8_t> levels;  ///< the level of each child's coupling to the predicted class
};

/// How many capsules an answer is made of, as means over images. Only positive contributions to the
/// predicted class count.
struct EffectivePartsReport {
  int64_t capsules = 0;  ///< of the layer that is looked at
  double half = 0;       ///< the least number of capsules that carry half of the evidence
  double spread = 0;     ///< exp of the entropy of the capsules' shares
  /// By predicted class; NaN for a class without images.
  std::vector<double> half_per_class, spread_per_class;
};

struct ParseTreeReport {
  int64_t samples = 0;
  double accuracy_quantized = 0;           ///< 0..1, with quantized couplings
  std::vector<int64_t> samples_per_class;  ///< by predicted class
  std::vector<LayerTrees> layers;          ///< one per routing layer, first layer first
  /// The last layer's most frequent trees of each class.
  std::vector<std::vector<FrequentTree>> most_frequent;
  /// If the forward passes kept contributions.
  std::optional<EffectivePartsReport> parts;

  /// The layer the paper reports: that of the class capsules.
  const LayerTrees& last() const& { return layers.back(); }
  LayerTrees last() && { return std::move(layers.back()); }
};

/// Fills in what a dictionary of keys of `key_couplings` couplings with K levels tells of a layer:
/// everything from `levels` to `unverified_keys`.
void describe_dictionary(LayerTrees& trees, const Dictionary& dictionary, int64_t key_couplings,
                         int64_t levels);

/// The `limit` most frequent trees of each class.
std::vector<std::vector<FrequentTree>> most_frequent_trees(const Dictionary& dictionary,
                                                           int64_t key_couplings, int64_t levels,
                                                           size_t limit);

}  // namespace remcaps
