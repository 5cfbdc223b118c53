// Couplings of a whole data set: their distribution per class, and images grouped by parse tree.
#pragma once

#include <unordered_map>
#include <vector>

#include "remcaps/capsule/backtrack.h"
#include "remcaps/parse_tree/keys.h"

namespace remcaps {

/// Couplings of the last routing layer with the predicted class, by class. Feed it every batch.
class CouplingStatistics {
 public:
  /// `quantizer` gives the histogram's bins.
  explicit CouplingStatistics(Quantizer quantizer) : quantizer_(std::move(quantizer)) {}

  void add(const Forward& forward);

  /// Mean over the images predicted as class j of c_{:,j}: float64 [J, I], CPU. NaN for a class
  /// without images.
  Tensor mean_couplings() const;
  /// How many children's mean coupling falls on each level, int64 [J, K], CPU: the published
  /// figures.
  Tensor histogram_of_means() const;
  /// How many couplings of all images and children fall on each level, int64 [J, K], CPU.
  Tensor histogram() const;

 private:
  Quantizer quantizer_;
  Tensor sum_;     // float64 [J, I]
  Tensor count_;   // int64 [J]
  Tensor levels_;  // int64 [J, K]
};

/// Images that share a parse tree: the same levels of c_{:,j} for the same predicted class j. Only
/// the 128-bit hash of a tree's key is kept, so a data set of any size fits.
class TreeGroups {
 public:
  TreeGroups(Quantizer quantizer, int64_t classes)
      : quantizer_(std::move(quantizer)), groups_(static_cast<size_t>(classes)) {}

  /// indices: int64 [B], the images' places in their data set.
  void add(const Forward& forward, const Tensor& indices);

  /// The images of each of a class's trees, most frequent tree first (of equally frequent ones the
  /// one with the earliest image first), at most `limit` trees.
  std::vector<std::vector<int64_t>> largest(int64_t class_index, size_t limit) const;
  /// How many trees a class has.
  int64_t trees(int64_t class_index) const;

 private:
  Quantizer quantizer_;
  std::vector<std::unordered_map<KeyHash, std::vector<int64_t>>> groups_;  // by class
};

}  // namespace remcaps
