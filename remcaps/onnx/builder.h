// Nodes and constants of an ONNX graph, with names that are unique.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace remcaps::onnx_export {

using Attribute = std::variant<int64_t, float, std::vector<int64_t>>;
using Attributes = std::map<std::string, Attribute>;

class Builder {
 public:
  explicit Builder(onnx::GraphProto& graph) : graph_(graph) {}

  /// Adds a node and returns the name of its output.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const Attributes& attributes = {});
  /// The same, with a given name of the output.
  void named(const std::string& output, const std::string& op,
             const std::vector<std::string>& inputs);

  std::string constant(const std::vector<int64_t>& shape, const std::vector<float>& values);
  std::string constant(float value) { return constant({}, {value}); }
  std::string integers(const std::vector<int64_t>& values);

  /// Sizes as Reshape takes them: 0 keeps a size, -1 is what is left.
  std::string reshape(const std::string& value, const std::vector<int64_t>& shape);
  std::string transpose(const std::string& value, const std::vector<int64_t>& order);
  std::string sum(const std::string& value, int64_t axis, bool keep);
  /// The sum of squares over the axes, which keep the size 1 if `keep`.
  std::string squares(const std::string& value, const std::vector<int64_t>& axes, bool keep);
  std::string slice(const std::string& value, int64_t axis, int64_t count);

 private:
  std::string fresh(const std::string& hint);
  onnx::GraphProto& graph_;
  int64_t count_ = 0;
};

}  // namespace remcaps::onnx_export
