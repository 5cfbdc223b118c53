// Collects the parse trees of a data set in one pass: quantized couplings -> keys -> entropy.
#pragma once

#include <optional>
#include <vector>

#include "remcaps/capsule/backtrack.h"
#include "remcaps/models/model.h"
#include "remcaps/parse_tree/tree_report.h"
#include "remcaps/torch/process_group.h"

namespace remcaps {

/// Counts the key of each row of `couplings` [B, N] in the class of that row. `classes` is int64
/// [B] on the CPU, contiguous.
void add_keys(Dictionary& dictionary, const Tensor& couplings, const Quantizer& quantizer,
              const Tensor& classes);

/// Give it the forward pass of every batch once, then ask for the report. The key of the last
/// routing layer is the column c_{:,j} of the predicted class j, whether the prediction is right or
/// wrong (published). The key of any other layer is its whole coupling matrix.
class TreeCollector {
 public:
  /// Whether the last routing layer must have a quantizer. Reports of parse trees need one.
  enum class LastLayer { kRequired, kOptional };

  /// One quantizer per routing layer; a layer without one has no dictionary.
  TreeCollector(const CapsNet& model, std::vector<std::optional<Quantizer>> quantizers,
                LastLayer last_layer = LastLayer::kRequired);

  /// Adds a forward pass with traces and these quantizers. labels: int64 [B]. If the pass has
  /// contributions, the report has effective parts. They are counted at the children of
  /// first_chained_layer() (capsule/backtrack.h).
  void add(const Forward& quantized, const Tensor& labels);

  /// The same images without quantizers, for the T- and D-score. Optional.
  void add_unquantized(const Forward& plain);

  /// Adds what the other processes have collected. Process r of n must have been given the batches
  /// r, r + n, r + 2n and so on. The reports of all become that of one process, bit for bit.
  void merge(ProcessGroup& group);

  /// `frequent`: how many trees of each class to list.
  ParseTreeReport report(size_t frequent = 5) const;

 private:
  /// Float64 tensors of one dimension on the device, one for each batch. The report adds them up in
  /// the order of the batches.
  using OfBatches = std::vector<Tensor>;
  struct Scores {
    OfBatches row_entropy;  ///< [1], sums over the batch
    int64_t rows = 0;
    OfBatches norm_sum, norm_square;  ///< [J], sums over the batch
    int64_t images = 0;
  };
  struct Parts {
    OfBatches half, spread, predicted;  ///< [B]
    int64_t capsules = 0;
  };
  void check_layers(const Forward& forward) const;
  void add_parts(const Forward& quantized, const Tensor& predicted);
  EffectivePartsReport report_parts() const;

  std::vector<RoutingLayer> routing_;
  std::vector<std::optional<Quantizer>> quantizers_;
  std::vector<Dictionary> dictionaries_;
  std::vector<Scores> scores_;
  std::vector<int64_t> clamped_, couplings_;  ///< per layer
  std::vector<int64_t> key_couplings_;        ///< per layer: couplings of one key
  std::vector<int64_t> samples_per_class_;    ///< by predicted class
  Tensor correct_;                            ///< int64, on the device
  Parts parts_;
  std::vector<int64_t> batch_sizes_;  ///< images of each batch
  int64_t samples_ = 0;
};

}  // namespace remcaps
