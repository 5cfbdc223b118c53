// The operations that a graph is compiled into. Weights are packed when an operation is made; a run
// changes nothing in it, so that several threads may run one network.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "remcaps/kernels/pictures/receptive_field.h"
#include "remcaps/kernels/pointwise/maps.h"
#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/simd/buffer.h"
#include "remcaps/parse_tree/quantizer.h"
#include "remcaps/runtime/evidence.h"
#include "remcaps/runtime/weights.h"

namespace remcaps::runtime {

/// A map [C, H, W], or capsules [I, D].
struct ValueShape {
  int64_t channels = 0, height = 0, width = 0;
  int64_t count = 0, dim = 0;

  static ValueShape map(int64_t channels, int64_t height, int64_t width) {
    return {channels, height, width, 0, 0};
  }
  static ValueShape capsules(int64_t count, int64_t dim) { return {0, 0, 0, count, dim}; }
  bool is_map() const { return channels > 0; }
  int64_t floats() const { return is_map() ? channels * height * width : count * dim; }
  bool operator==(const ValueShape&) const = default;
};

/// A value of a batch of images.
struct Value {
  ValueShape shape;
  int64_t batch = 0;
  kernels::Buffer data;
  kernels::MapStrides strides = {};  ///< of a map; capsules are [B, I, D]

  /// A map [B, C, H, W], or capsules.
  static Value make(const ValueShape& shape, int64_t batch);
  /// A map whose channels lie together, with room for `room` channels in each pixel.
  static Value channels_last(const ValueShape& shape, int64_t batch, int64_t room);
  kernels::cpu::MapView view() const {
    return {data.get(), batch, shape.channels, shape.height, shape.width, strides};
  }
};

/// Rounding to the levels of a quantizer, as the routing kernels want it.
class LevelTable {
 public:
  explicit LevelTable(Quantizer quantizer);
  const Quantizer& quantizer() const { return quantizer_; }
  kernels::CouplingLevels levels() const {
    return {edges_.data(), quantizer_.centres().data(), quantizer_.levels()};
  }

 private:
  Quantizer quantizer_;
  std::vector<float> edges_;
};

/// What a run asks of the routing layers, and what they leave.
struct Pass {
  bool couplings = false;
  bool quantize = false;
  bool with_contributions = false;  ///< which needs the couplings
  /// The couplings of each routing layer, for all images so far.
  std::vector<std::vector<float>> layers = {};
  /// The lengths of the children of each fully connected one.
  std::vector<std::vector<float>> child_lengths = {};
  /// As in an Answer.
  std::vector<float> contributions = {}, evidence = {}, bias_evidence = {};
};

/// A routing layer. Convolutional ones have several positions, each with couplings of its own.
struct RoutingInfo {
  int64_t positions = 1, children = 0, parents = 0;
  std::vector<int64_t> kept = {};  ///< which children a compact network has; empty: all
};

/// The window that an operation slides over its map.
struct SlidingWindow {
  int64_t kernel_y = 1, kernel_x = 1, stride_y = 1, stride_x = 1, padding_y = 0, padding_x = 0;

  kernels::ReceptiveField over(const kernels::ReceptiveField& field) const {
    return {field.y.under(kernel_y, stride_y, padding_y),
            field.x.under(kernel_x, stride_x, padding_x)};
  }
};

/// Where capsules lie in the image: `types` at each place of a map, from number `first` on.
struct CapsulePlaces {
  int64_t first = 0, types = 0, height = 0, width = 0;
  bool type_first = true;
  kernels::ReceptiveField field;
};

class Operation {
 public:
  virtual ~Operation() = default;
  /// An input that is `taken` is not read again, and may be overwritten.
  struct Input {
    Value* value = nullptr;
    bool taken = false;
  };
  virtual Value run(std::vector<Input>& inputs, Pass& pass) const = 0;
  /// Of a routing operation whose output is capsules: shares out what they contribute among their
  /// children. `couplings` are those of the image, [P, I, J].
  virtual Evidence evidence_below(const Value& children, int64_t image, const float* couplings,
                                  const ParentEvidence& from) const;
  /// Of the output.
  ValueShape shape;
  /// What a routing operation routes.
  std::optional<RoutingInfo> routing = std::nullopt;
  /// What it slides over a map.
  std::optional<SlidingWindow> window = std::nullopt;
  /// If it makes capsules of a map, or of one map's capsules others: where they lie, but for the
  /// field.
  std::optional<CapsulePlaces> places = std::nullopt;
  /// Whether an image takes less time in a batch than alone: weights are read once for several.
  bool wants_batches = false;
};

/// Where a routing operation stands among the others, and its levels.
struct RoutingPlace {
  size_t index = 0;
  const LevelTable* levels = nullptr;  ///< null: never quantized
};

/// Error if the op is not known, or if attributes, inputs and tensors do not fit together.
std::unique_ptr<Operation> make_operation(const GraphNode& node,
                                          const std::vector<ValueShape>& inputs,
                                          const Weights& weights, const RoutingPlace& place);

/// Reads the attributes of a node and checks them.
class NodeReader {
 public:
  NodeReader(const GraphNode& node, const std::vector<ValueShape>& inputs, const Weights& weights)
      : node_(node), inputs_(inputs), weights_(weights) {}

  const GraphNode& node() const { return node_; }
  const Weights& weights() const { return weights_; }
  int64_t integer(const std::string& key, int64_t low, int64_t high) const;
  int64_t integer(const std::string& key, int64_t low, int64_t high, int64_t otherwise) const;
  float real(const std::string& key, double low, double high) const;
  std::string word(const std::string& key, const std::vector<std::string>& allowed) const;
  /// `otherwise` if the node has no such word.
  std::string word(const std::string& key, const std::vector<std::string>& allowed,
                   const std::string& otherwise) const;
  bool has_word(const std::string& key) const { return node_.words.contains(key); }
  kernels::SquashForm squash_form() const;
  /// The shape of the only input.
  ValueShape map() const;
  ValueShape capsules() const;
  /// Error unless `holds`; `what` says what does not fit.
  void require(bool holds, const std::string& what) const;
  /// The output's shape, if it is not too large.
  ValueShape checked(const ValueShape& shape) const;

  const std::vector<ValueShape>& inputs() const { return inputs_; }

 private:
  const GraphNode& node_;
  const std::vector<ValueShape>& inputs_;
  const Weights& weights_;
};

/// The operations of the three families; null if the op is of another one.
std::unique_ptr<Operation> make_convolution(const NodeReader& reader);
std::unique_ptr<Operation> make_pointwise(const NodeReader& reader);
std::unique_ptr<Operation> make_routing(const NodeReader& reader, const RoutingPlace& place);

}  // namespace remcaps::runtime
