#include <limits>

#include "remcaps/base/error.h"
#include "remcaps/onnx/operations.h"

namespace remcaps::onnx_export {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

std::string tensor(Builder& builder, const Source& source, const std::string& role) {
  const FloatTensor values = source.reader.weights().read(source.reader.node(), role);
  return builder.constant(values.shape, values.values);
}

std::string convolution(Builder& builder, const Source& source) {
  const auto number = [&](const char* key) { return source.reader.integer(key, 0, kMost); };
  std::vector<std::string> inputs = {source.inputs[0], tensor(builder, source, "weight")};
  if (source.reader.node().tensors.contains("bias"))
    inputs.push_back(tensor(builder, source, "bias"));
  const int64_t y = number("padding_y"), x = number("padding_x");
  return builder.node("Conv", inputs,
                      {{"strides", std::vector{number("stride_y"), number("stride_x")}},
                       {"pads", std::vector{y, x, y, x}},
                       {"group", number("groups")}});
}

std::string norm(Builder& builder, const Source& source, const std::string& op,
                 const std::vector<std::string>& roles) {
  std::vector<std::string> inputs = source.inputs;
  for (const std::string& role : roles) inputs.push_back(tensor(builder, source, role));
  return builder.node(op, inputs, {{"epsilon", source.reader.real("epsilon", 0, 1)}});
}

std::string max_pool(Builder& builder, const Source& source) {
  const auto both = [&](const char* key) {
    return std::vector<int64_t>(2, source.reader.integer(key, 0, kMost));
  };
  return builder.node("MaxPool", source.inputs,
                      {{"kernel_shape", both("kernel")},
                       {"strides", both("stride")},
                       {"pads", std::vector<int64_t>(4, both("padding")[0])}});
}

// [N, T * D, H, W] -> [N, T, D, P]
std::string by_type(Builder& builder, const Source& source) {
  return builder.reshape(source.inputs[0], {0, source.reader.integer("types", 1, kMost),
                                            source.reader.integer("dim", 1, kMost), -1});
}

std::string squash_by_rule(Builder& builder, const Source& source, const std::string& value) {
  return squash(builder, value, {2}, source.reader.squash_form(),
                source.reader.real("epsilon", 0, 1));
}

std::string capsules(Builder& builder, const Source& source) {
  const bool type_first = source.reader.node().words.at("order") == "type-first";
  const std::string turned =
      builder.transpose(by_type(builder, source), type_first ? std::vector<int64_t>{0, 1, 3, 2}
                                                             : std::vector<int64_t>{0, 3, 1, 2});
  const std::string flat = builder.reshape(turned, {0, source.shape.count, source.shape.dim});
  return source.reader.has_word("form") ? squash_by_rule(builder, source, flat) : flat;
}

std::string lengths(Builder& builder, const Source& source) {
  const std::string squares = builder.squares(source.inputs[0], {2}, /*keep=*/false);
  return builder.node(
      "Sqrt",
      {builder.node("Add", {squares, builder.constant(source.reader.real("epsilon", 0, 1))})});
}

}  // namespace

std::string squash(Builder& builder, const std::string& value, const std::vector<int64_t>& axes,
                   kernels::SquashForm form, float epsilon) {
  const std::string one = builder.constant(1.0F);
  const std::string n2 = builder.squares(value, axes, /*keep=*/true);
  const std::string n =
      builder.node("Sqrt", {builder.node("Add", {n2, builder.constant(epsilon)})});
  std::string factor;
  if (form == kernels::SquashForm::kNorm) {
    const std::string more = builder.node("Add", {n2, one});
    factor = builder.node("Div", {n2, builder.node("Mul", {more, n})});
  } else {
    const std::string small = builder.node("Exp", {builder.node("Neg", {n})});
    factor = builder.node("Div", {builder.node("Sub", {one, small}), n});
  }
  return builder.node("Mul", {value, factor});
}

std::string add_layer(Builder& builder, const Source& source) {
  const std::string& op = source.reader.node().op;
  if (op == "convolution") return convolution(builder, source);
  if (op == "batch_norm")
    return norm(builder, source, "BatchNormalization", {"weight", "bias", "mean", "variance"});
  if (op == "instance_norm")
    return norm(builder, source, "InstanceNormalization", {"weight", "bias"});
  if (op == "relu")
    return builder.node("LeakyRelu", source.inputs, {{"alpha", source.reader.real("slope", 0, 1)}});
  if (op == "add") return builder.node("Add", source.inputs);
  if (op == "max_pool") return max_pool(builder, source);
  if (op == "squash")
    return builder.reshape(squash_by_rule(builder, source, by_type(builder, source)),
                           {0, source.shape.channels, source.shape.height, source.shape.width});
  if (op == "capsules") return capsules(builder, source);
  if (op == "concatenate") return builder.node("Concat", source.inputs, {{"axis", int64_t{1}}});
  if (op == "lengths") return lengths(builder, source);
  fail("{}: {} has no form in ONNX", source.reader.weights().source(), op);
}

}  // namespace remcaps::onnx_export
