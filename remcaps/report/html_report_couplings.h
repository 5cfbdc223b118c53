// The couplings that a report's explorer works on, one byte each.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "remcaps/capsule/forward.h"
#include "remcaps/models/model.h"
#include "remcaps/report/html_report_page.h"

namespace remcaps {

/// Codes of one byte for couplings. Each level of the quantizer has the same number of codes,
/// spread over its interval: the levels a network was measured with are exact, and those of any
/// other K are off by at most half a code.
class CouplingCodes {
 public:
  /// Without a quantizer, or if it has more than 256 levels: 256 steps of [0, 1].
  explicit CouplingCodes(const std::optional<Quantizer>& quantizer);

  /// levels: indices the quantized forward pass gave; couplings: of the plain pass, same shape.
  /// uint8 on the CPU.
  Tensor encode(const Tensor& levels, const Tensor& couplings) const;
  /// The coupling each code stands for.
  const std::vector<double>& decode() const { return decode_; }
  /// Level indices as bytes, on the CPU; zeros if nothing is quantized.
  Tensor levels_of(const Tensor& quantized_couplings) const;

 private:
  std::optional<Quantizer> quantizer_;
  int64_t codes_per_level_ = 0;
  std::vector<double> decode_;
};

/// Collects the explorer's data of a run. For each batch, add the quantized pass, then the plain
/// one.
class ExplorerData {
 public:
  ExplorerData(std::vector<std::optional<Quantizer>> quantizers, int64_t samples);

  /// `rows` (int64) are the rows of the batch that the explorer shows. `map_size` is the height and
  /// width of the saliency maps, if the network's capsules have a place. A forward pass with
  /// contributions gives those to the predicted class.
  void add_quantized(const Forward& forward, const Tensor& rows,
                     const std::vector<int64_t>& map_size, const std::string& network,
                     ImageShape input);
  void add_plain(const Forward& forward, const Tensor& rows);

  /// The schema's Explorer, in at most `budget` bytes of the file, the classes' activations
  /// included. Contributions come first, if they fit into half of it. Then come the couplings of
  /// the last layer: all columns if they fit, else the predicted class's column. Then come the
  /// layers below, or saliency maps if no kept layer has a place.
  nlohmann::json to_json(PageBlobs& blobs, size_t budget) const;

 private:
  struct Layer {
    explicit Layer(CouplingCodes layer_codes) : codes(std::move(layer_codes)) {}

    CouplingCodes codes;
    bool kept = false;            ///< small enough to be considered
    bool predicted_only = false;  ///< only the predicted class's column was collected
    bool has_place = false;       ///< saliency can be computed from it
    std::vector<Tensor> levels, couplings, activations;  ///< by batch
  };

  nlohmann::json contributions_json(PageBlobs& blobs, size_t& left) const;

  int64_t samples_;
  std::vector<Layer> layers_;
  size_t parts_layer_ = 0;                               ///< whose children contribute
  std::vector<Tensor> contributions_, evidence_, bias_;  ///< by batch: double [n, I], [n], [n]
  std::vector<Tensor> predicted_;                        ///< int64 [n]
  std::vector<Tensor> class_activations_;                ///< float [n, J]
  std::vector<Tensor> maps_;                             ///< float [n, H, W]
};

}  // namespace remcaps
