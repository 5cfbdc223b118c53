#include "remcaps/models/network_plan.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/conv_caps.h"
#include "remcaps/capsule/decoder.h"
#include "remcaps/capsule/routing/iterated.h"

namespace remcaps {
namespace {

std::string size_text(const torch::ExpandingArray<2>& size) {
  return fmt::format("{}x{}", size->at(0), size->at(1));
}

std::string conv_text(const torch::ExpandingArray<2>& kernel,
                      const torch::ExpandingArray<2>& stride, int64_t groups) {
  std::string text = fmt::format("{} {}", groups > 1 ? "depthwise" : "Conv2d", size_text(kernel));
  if (stride->at(0) == stride->at(1) && stride->at(0) == 1) return text;
  return text + (stride->at(0) == stride->at(1) ? fmt::format(" s{}", stride->at(0))
                                                : " s" + size_text(stride));
}

int64_t elements(const std::optional<RoutingParameter>& parameter) {
  return parameter ? c10::multiply_integers(parameter->shape) : 0;
}

void set_cost(LayerCost& row, const RoutingCost& cost) {
  row.multiply_adds = cost.multiply_adds;
  row.vote_floats = cost.vote_floats;
  row.activation_floats = cost.activation_floats;
}

thread_local WeightLimit* limit = nullptr;

}  // namespace

WeightLimit::WeightLimit(std::string source, int64_t most)
    : source_(std::move(source)), most_(most), left_(2 * most) {
  limit = this;
}

WeightLimit::~WeightLimit() {
  limit = nullptr;
}

void WeightLimit::take(const std::string& network, const std::string& layer, int64_t weights) {
  if (limit == nullptr) return;
  check(weights <= limit->left_, "{}: holds {} numbers; {} of its {} needs more", limit->source_,
        limit->most_, layer, network);
  limit->left_ -= weights;
}

NetworkPlan::NetworkPlan(std::string network, ImageShape input)
    : network_(std::move(network)),
      input_(input),
      map_{input.channels, input.height, input.width, "input"} {}

void NetworkPlan::add(LayerCost row) {
  WeightLimit::take(network_, row.name, row.parameters);
  rows_.push_back(std::move(row));
}

void NetworkPlan::advance(const std::string& layer, const char* what,
                          torch::ExpandingArray<2> kernel, torch::ExpandingArray<2> stride,
                          torch::ExpandingArray<2> padding) {
  const int64_t rows = map_.height + 2 * padding->at(0) - kernel->at(0);
  const int64_t columns = map_.width + 2 * padding->at(1) - kernel->at(1);
  if (rows < 0 || columns < 0) {
    if (map_.origin == "input")
      fail("{}: {} {} {} does not fit the {}x{} input", network_, layer, what, size_text(kernel),
           map_.height, map_.width);
    fail("{}: {} {} {} does not fit the {}x{} map of {} (input {}x{})", network_, layer, what,
         size_text(kernel), map_.height, map_.width, map_.origin, input_.height, input_.width);
  }
  map_.height = rows / stride->at(0) + 1;
  map_.width = columns / stride->at(1) + 1;
  map_.field.y = map_.field.y.under(kernel->at(0), stride->at(0), padding->at(0));
  map_.field.x = map_.field.x.under(kernel->at(1), stride->at(1), padding->at(1));
  map_.origin = layer;
}

torch::nn::Conv2dOptions NetworkPlan::conv(const std::string& layer, const ConvShape& shape,
                                           const std::string& then, int64_t kept) {
  auto options = torch::nn::Conv2dOptions(map_.channels, shape.channels, shape.kernel)
                     .stride(shape.stride)
                     .padding(shape.padding)
                     .groups(shape.groups)
                     .bias(shape.bias);
  const int64_t weights =
      shape.channels * (map_.channels / shape.groups) * shape.kernel->at(0) * shape.kernel->at(1);
  advance(layer, "kernel", shape.kernel, shape.stride, shape.padding);
  map_.channels = shape.channels;

  LayerCost row;
  row.name = layer;
  row.kind =
      conv_text(shape.kernel, shape.stride, shape.groups) + (then.empty() ? "" : " + " + then);
  row.output = {map_.channels, map_.height, map_.width};
  row.parameters = weights + (shape.bias ? shape.channels : 0);
  row.multiply_adds = weights * map_.height * map_.width;
  row.activation_floats = kept * map_.channels * map_.height * map_.width;
  add(std::move(row));
  return options;
}

void NetworkPlan::pad(int64_t margin) {
  map_.height += 2 * margin;
  map_.width += 2 * margin;
  map_.field.y = map_.field.y.under(/*kernel=*/1, /*stride=*/1, margin);
  map_.field.x = map_.field.x.under(/*kernel=*/1, /*stride=*/1, margin);
}

void NetworkPlan::pool(const std::string& layer, int64_t kernel, int64_t stride, int64_t padding) {
  advance(layer, "window", kernel, stride, padding);
}

void NetworkPlan::primary_caps(const std::string& layer, const PrimaryCapsOptions& options) {
  conv(layer,
       {.channels = options.types() * options.dim(),
        .kernel = options.kernel(),
        .stride = options.stride(),
        .padding = options.padding(),
        .groups = options.groups()},
       "squash", /*kept=*/2);
  rows_.back().output = {options.types() * map_.height * map_.width, options.dim()};
}

void NetworkPlan::conv2d_caps(const std::string& layer, const Conv2dCapsOptions& options) {
  conv(layer,
       {.channels = options.types() * options.dim(),
        .kernel = 3,
        .stride = options.stride(),
        .padding = 1,
        .bias = options.bias()},
       "squash", /*kept=*/2);
}

void NetworkPlan::conv3d_caps(const std::string& layer, const Conv3dCapsOptions& options) {
  const int64_t channels = options.types() * options.dim();
  advance(layer, "kernel", 3, 1, 1);
  LayerCost row;
  row.name = layer;
  row.kind =
      fmt::format("Conv3D {}x3x3 routing r={}", options.depth(), options.routing().iterations);
  row.output = {channels, map_.height, map_.width};
  row.parameters = channels * options.depth() * 9 + (options.conv_bias() ? channels : 0) +
                   (options.bias() ? channels : 0);
  set_cost(row, conv3d_cost(options.types(), options.dim(), options.depth(),
                            map_.height * map_.width, options.routing()));
  add(std::move(row));
}

void NetworkPlan::conv_caps(const std::string& layer, const ConvCapsOptions& options) {
  advance(layer, "kernel", options.kernel(), options.stride(), 0);
  map_.channels = options.parent_types() * options.parent_dim();
  const int64_t positions = map_.height * map_.width;
  LayerCost row;
  row.name = layer;
  row.kind = fmt::format("ConvCaps {}x{} s{} dynamic r={}", options.kernel(), options.kernel(),
                         options.stride(), options.routing().iterations);
  row.output = {options.parent_types() * positions, options.parent_dim()};
  row.parameters =
      options.places() * options.parent_types() * options.parent_dim() * options.child_dim() +
      elements(bias_parameter(options.routing().bias, options.window()));
  set_cost(row, conv_caps_cost(options.window(), positions, options.routing()));
  add(std::move(row));
}

void NetworkPlan::fc_caps(const std::string& layer, const FcCapsOptions& options) {
  LayerCost row;
  row.name = layer;
  row.kind = "FcCaps " + options.routing()->label();
  row.output = {options.parents(), options.parent_dim()};
  row.parameters = options.children() * options.parents() / options.shared_over() *
                       options.parent_dim() * options.child_dim() +
                   elements(options.routing()->parameter(options.layer()));
  set_cost(row, options.routing()->cost(options.layer()));
  add(std::move(row));
}

void NetworkPlan::decoder(const Decoder& decoder) {
  LayerCost row;
  row.name = "decoder";
  row.kind = decoder.kind();
  row.output = {input_.channels, input_.height, input_.width};
  for (const auto& parameter : decoder.parameters()) row.parameters += parameter.numel();
  row.multiply_adds = decoder.multiply_adds();
  row.activation_floats = decoder.activation_floats();
  rows_.push_back(std::move(row));
}

}  // namespace remcaps
