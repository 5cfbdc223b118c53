#include "remcaps/onnx/builder.h"

#include <fmt/format.h>

namespace remcaps::onnx_export {
namespace {

void set_attribute(onnx::AttributeProto& to, const Attribute& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(*number);
  } else if (const auto* real = std::get_if<float>(&value)) {
    to.set_type(onnx::AttributeProto::FLOAT);
    to.set_f(*real);
  } else {
    to.set_type(onnx::AttributeProto::INTS);
    for (const int64_t item : std::get<std::vector<int64_t>>(value)) to.add_ints(item);
  }
}

}  // namespace

std::string Builder::fresh(const std::string& hint) {
  return fmt::format("{}_{}", hint, count_++);
}

std::string Builder::node(const std::string& op, const std::vector<std::string>& inputs,
                          const Attributes& attributes) {
  onnx::NodeProto& node = *graph_.add_node();
  node.set_op_type(op);
  node.set_name(fresh(op));
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(node.name() + "_out");
  for (const auto& [key, value] : attributes) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(key);
    set_attribute(attribute, value);
  }
  return node.output(0);
}

void Builder::named(const std::string& output, const std::string& op,
                    const std::vector<std::string>& inputs) {
  node(op, inputs);
  graph_.mutable_node(graph_.node_size() - 1)->set_output(0, output);
}

std::string Builder::constant(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  onnx::TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(fresh("constant"));
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t size : shape) tensor.add_dims(size);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor.name();
}

std::string Builder::integers(const std::vector<int64_t>& values) {
  onnx::TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(fresh("integers"));
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  tensor.set_raw_data(values.data(), values.size() * sizeof(int64_t));
  return tensor.name();
}

std::string Builder::reshape(const std::string& value, const std::vector<int64_t>& shape) {
  return node("Reshape", {value, integers(shape)});
}

std::string Builder::transpose(const std::string& value, const std::vector<int64_t>& order) {
  return node("Transpose", {value}, {{"perm", order}});
}

std::string Builder::sum(const std::string& value, int64_t axis, bool keep) {
  return node("ReduceSum", {value, integers({axis})}, {{"keepdims", int64_t{keep}}});
}

std::string Builder::squares(const std::string& value, const std::vector<int64_t>& axes,
                             bool keep) {
  return node("ReduceSumSquare", {value}, {{"axes", axes}, {"keepdims", int64_t{keep}}});
}

std::string Builder::slice(const std::string& value, int64_t axis, int64_t count) {
  return node("Slice", {value, integers({0}), integers({count}), integers({axis})});
}

}  // namespace remcaps::onnx_export
