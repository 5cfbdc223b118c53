#include "remcaps/runtime/operation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "remcaps/base/error.h"

namespace remcaps::runtime {
namespace {

constexpr int64_t kMaxFloats = int64_t{1} << 27;  // of a value, for one image

}  // namespace

Value Value::make(const ValueShape& shape, int64_t batch) {
  Value value{shape, batch, kernels::Buffer(batch * shape.floats())};
  if (shape.is_map()) value.strides = {shape.floats(), shape.height * shape.width, shape.width, 1};
  return value;
}

Value Value::channels_last(const ValueShape& shape, int64_t batch, int64_t room) {
  const int64_t image = shape.height * shape.width * room;
  return {shape, batch, kernels::Buffer(batch * image), {image, 1, shape.width * room, room}};
}

LevelTable::LevelTable(Quantizer quantizer) : quantizer_(std::move(quantizer)) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  edges_ = quantizer_.inner_edges();
  edges_.insert(edges_.begin(), -kInfinite);  // couplings beyond the edges go to the outer levels
  edges_.push_back(kInfinite);
}

Evidence Operation::evidence_below(const Value&, int64_t, const float*,
                                   const ParentEvidence&) const {
  fail("an operation that routes no capsules has no contributions");
}

int64_t NodeReader::integer(const std::string& key, int64_t low, int64_t high) const {
  const auto found = node_.numbers.find(key);
  check(found != node_.numbers.end(), "{}: {} of its graph has no {}", weights_.source(),
        node_.name, key);
  const double value = found->second;
  check(value >= static_cast<double>(low) && value <= static_cast<double>(high) &&
            value == std::floor(value),
        "{}: {} of its graph has {} = {:g}; expected {} to {}", weights_.source(), node_.name, key,
        value, low, high);
  return static_cast<int64_t>(value);
}

int64_t NodeReader::integer(const std::string& key, int64_t low, int64_t high,
                            int64_t otherwise) const {
  return node_.numbers.contains(key) ? integer(key, low, high) : otherwise;
}

float NodeReader::real(const std::string& key, double low, double high) const {
  const auto found = node_.numbers.find(key);
  check(found != node_.numbers.end(), "{}: {} of its graph has no {}", weights_.source(),
        node_.name, key);
  check(found->second >= low && found->second <= high,
        "{}: {} of its graph has {} = {:g}; expected {:g} to {:g}", weights_.source(), node_.name,
        key, found->second, low, high);
  return static_cast<float>(found->second);
}

std::string NodeReader::word(const std::string& key,
                             const std::vector<std::string>& allowed) const {
  const auto found = node_.words.find(key);
  check(found != node_.words.end() &&
            std::find(allowed.begin(), allowed.end(), found->second) != allowed.end(),
        "{}: {} of its graph has {} = {}; expected {}", weights_.source(), node_.name, key,
        found == node_.words.end() ? "nothing" : found->second, fmt::join(allowed, " or "));
  return found->second;
}

std::string NodeReader::word(const std::string& key, const std::vector<std::string>& allowed,
                             const std::string& otherwise) const {
  return has_word(key) ? word(key, allowed) : otherwise;
}

kernels::SquashForm NodeReader::squash_form() const {
  return word("form", {"norm", "exponential"}) == "norm" ? kernels::SquashForm::kNorm
                                                         : kernels::SquashForm::kExponential;
}

ValueShape NodeReader::map() const {
  require(inputs_.size() == 1 && inputs_[0].is_map(), "expected one map");
  return inputs_[0];
}

ValueShape NodeReader::capsules() const {
  require(inputs_.size() == 1 && !inputs_[0].is_map(), "expected capsules of one layer");
  return inputs_[0];
}

void NodeReader::require(bool holds, const std::string& what) const {
  check(holds, "{}: {} ({}) of its graph: {}", weights_.source(), node_.name, node_.op, what);
}

ValueShape NodeReader::checked(const ValueShape& shape) const {
  double floats = shape.is_map() ? 1.0 * shape.channels * shape.height * shape.width
                                 : 1.0 * shape.count * shape.dim;
  require(floats >= 1 && floats <= static_cast<double>(kMaxFloats), "its output is too large");
  return shape;
}

std::unique_ptr<Operation> make_operation(const GraphNode& node,
                                          const std::vector<ValueShape>& inputs,
                                          const Weights& weights, const RoutingPlace& place) {
  const NodeReader reader(node, inputs, weights);
  std::unique_ptr<Operation> operation;
  if (is_routing(node))
    operation = make_routing(reader, place);
  else if (node.op == "convolution")
    operation = make_convolution(reader);
  else
    operation = make_pointwise(reader);
  check(operation != nullptr, "{}: {} of its graph has the unknown op {}", weights.source(),
        node.name, node.op);
  return operation;
}

}  // namespace remcaps::runtime
