// Collects the parse trees of a data set in one pass: quantized couplings -> keys -> entropy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"
#include "remcaps/models/model.h"
#include "remcaps/parse_tree/dictionary.h"

namespace remcaps {

/// The couplings' levels of each image as keys: level indices 0..K-1, two to a byte where K <= 16
/// (the first in the low half). [B, N] couplings -> uint8 [B, bytes], on the couplings' device.
Tensor pack_levels(const Tensor& couplings, const Quantizer& quantizer);
/// The level indices of a packed key.
std::vector<uint8_t> unpack_levels(std::string_view key, int64_t count, int64_t levels);

/// What became of one routing layer's couplings over a data set.
struct LayerTrees {
  std::string layer;
  int64_t levels = 0;      ///< K; 0: not quantized, the fields up to `clamped` stay empty
  double entropy = 0;      ///< bits, mean over classes
  double entropy_std = 0;  ///< over classes: the published +-
  std::vector<double> entropy_per_class;
  std::vector<int64_t> keys_per_class;
  double median_keys = 0;
  /// Of the couplings of a key those whose level is not the same in all images of the class: what
  /// tells its trees apart.
  std::vector<int64_t> varying_per_class;
  double median_varying = 0;
  int64_t key_couplings = 0;    ///< of how many
  int64_t unverified_keys = 0;  ///< distinct keys known by their 128-bit hash alone
  int64_t clamped = 0;          ///< couplings that lay outside [0, 1]
  int64_t couplings = 0;        ///< of how many

  /// gamma-CapsNet's scores, from the couplings and activations before quantization.
  /// T: 1 - mean_i H(c_i) / ln J, 1 where every child has one parent.
  std::optional<double> t_score;
  /// D: max_j of the standard deviation of ||v_j|| over the images, where the network shows
  /// ||v_j||.
  std::optional<double> d_score;
};

struct FrequentTree {
  int64_t count = 0;
  std::vector<uint8_t> levels;  ///< level index of each child's coupling to the predicted class
};

struct ParseTreeReport {
  int64_t samples = 0;
  double accuracy_quantized = 0;           ///< 0..1, with quantized couplings
  std::vector<int64_t> samples_per_class;  ///< by predicted class
  std::vector<LayerTrees> layers;          ///< one per routing layer, first layer first
  /// The last layer's most frequent trees of each class.
  std::vector<std::vector<FrequentTree>> most_frequent;

  /// The layer the paper reports: the class capsules'.
  const LayerTrees& last() const& { return layers.back(); }
  LayerTrees last() && { return std::move(layers.back()); }
};

/// Feed it every batch's forward pass once, then ask for the report. The key of the last routing
/// layer is the column c_{:,j} of the predicted class j, whether the prediction is right or wrong
/// (published); the key of any other layer is its whole coupling matrix.
class ParseTreeCollector {
 public:
  /// Whether the last routing layer must have a quantizer (it does where parse trees are reported).
  enum class LastLayer { kRequired, kOptional };

  /// One quantizer per routing layer; a layer without one has no dictionary.
  ParseTreeCollector(const CapsNet& model, std::vector<std::optional<Quantizer>> quantizers,
                     LastLayer last_layer = LastLayer::kRequired);

  /// A forward pass with traces and these quantizers. labels: int64 [B].
  void add(const Forward& quantized, const Tensor& labels);

  /// The same images without quantizers, for the T- and D-score. Optional.
  void add_unquantized(const Forward& plain);

  /// `frequent`: how many trees of each class to list.
  ParseTreeReport report(size_t frequent = 5) const;

 private:
  struct Scores {  // sums on the device
    Tensor row_entropy;
    int64_t rows = 0;
    Tensor norm_sum, norm_square;
    int64_t images = 0;
  };
  void check_layers(const Forward& forward) const;

  std::vector<RoutingLayer> routing_;
  std::vector<std::optional<Quantizer>> quantizers_;
  std::vector<Dictionary> dictionaries_;
  std::vector<Scores> scores_;
  std::vector<int64_t> clamped_, couplings_;  ///< per layer
  std::vector<int64_t> key_couplings_;        ///< per layer: of one image's key
  std::vector<int64_t> samples_per_class_;    ///< by predicted class
  Tensor correct_;                            ///< int64, on the device
  int64_t samples_ = 0;
};

}  // namespace remcaps
