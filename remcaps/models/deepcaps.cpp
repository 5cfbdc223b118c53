#include "remcaps/models/deepcaps.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/batch_norm.h"
#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/init.h"
#include "remcaps/models/graph_nodes.h"
#include "remcaps/models/network_plan.h"

namespace remcaps {
namespace {

constexpr double kSquashEpsilon = 1e-8;
constexpr int64_t kCells = 4;
constexpr int64_t kCapsuleDim = 8;  // of cells 1 to 3
constexpr int64_t kFirstCellDim = 4;

}  // namespace

DeepCapsOptions DeepCapsOptions::original() {
  DeepCapsOptions options;
  options.relu = true;
  options.squash_conv1 = false;
  options.norm_momentum = 0.01;
  options.norm_epsilon = 1e-3;
  options.conv_bias = false;
  options.third_cell = ThirdCell::kLast;
  options.init = Init::kKeras;
  options.conv3d_depth = kCapsuleDim;
  options.conv3d_conv_bias = false;
  options.conv3d_bias = true;
  options.conv3d.gradient = RoutingGradient::kFull;
  options.conv3d.squash_over = Conv3dRouting::SquashOver::kMap;
  options.routing = DynamicRouting{.gradient = RoutingGradient::kFull,
                                   .bias = BiasUse::kEvery,
                                   .squash = {Squash::Form::kNorm, kSquashEpsilon}};
  return options;
}

void bind(ConfigSection& section, DeepCapsOptions& options, const ModelContext&) {
  std::string variant = "rem";
  section.key("variant", variant, {"rem", "original"});
  if (variant == "original") options = DeepCapsOptions::original();
  section.key("relu", options.relu);
  section.key("squash_conv1", options.squash_conv1);
  section.key("norm_momentum", options.norm_momentum, {0.0, 1.0});
  section.key("norm_epsilon", options.norm_epsilon, {0.0, 1.0});
  section.key("conv_bias", options.conv_bias);
  section.key("conv_channels", options.conv_channels, {1, 65536});
  section.key("types", options.types, {1, 4096});
  section.key("class_dim", options.class_dim, {1, 1024});
  section.key("third_cell", options.third_cell, {"first", "last"});
  section.key("init", options.init, {"torch", "keras"});

  ConfigSection conv3d = section.section("conv3d");
  conv3d.key("depth", options.conv3d_depth, {1, kCapsuleDim});
  conv3d.key("conv_bias", options.conv3d_conv_bias);
  conv3d.key("bias", options.conv3d_bias);
  bind(conv3d, options.conv3d);
  conv3d.finish();
  section.adopt("conv3d", conv3d);

  bind_routing(section, options.routing);
  bind(section, options.decoder);
}

DeepCaps::DeepCaps(const ModelContext& context, const DeepCapsOptions& options)
    : StackedCapsNet("deepcaps", context), options_(options) {
  conv1_ = add_conv("conv1", {.channels = options.conv_channels, .kernel = 3, .padding = 1},
                    std::string(options.relu ? "ReLU + " : "") + "batch norm" +
                        (options.squash_conv1 ? " + squash" : ""),
                    /*kept=*/1 + (options.relu ? 1 : 0) + (options.squash_conv1 ? 1 : 0));
  bn1_ = register_module("bn1",
                         torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(options.conv_channels)
                                                    .eps(options.norm_epsilon)
                                                    .momentum(options.norm_momentum)));
  plan().add_parameters(2 * options.conv_channels);

  FeatureMap third, fourth;
  for (int64_t index = 0; index < kCells; ++index) {
    cells_.push_back(add_cell(index, index == 0 ? kFirstCellDim : kCapsuleDim));
    third = fourth;
    fourth = plan().map();
  }
  const bool third_first = options.third_cell == DeepCapsOptions::ThirdCell::kFirst;
  const FeatureMap& before = third_first ? third : fourth;
  const FeatureMap& after = third_first ? fourth : third;
  const int64_t offset = before.height * before.width * options.types;
  set_grids({grid_of(before, 0), grid_of(after, offset)});
  add_capsules("class",
               FcCapsOptions(offset + after.height * after.width * options.types, context.classes)
                   .child_dim(kCapsuleDim)
                   .parent_dim(options.class_dim)
                   .routing(options.routing)
                   .weight_std(0.05)
                   .bias_mean(0.0)
                   .bias_std(0.05));
  if (options.init == DeepCapsOptions::Init::kKeras) initialise_as_keras();
  finish(options.decoder);
}

CapsuleGrid DeepCaps::grid_of(const FeatureMap& map, int64_t offset) const {
  CapsuleGrid grid = type_last_grid(offset, options_.types, map.height, map.width);
  grid.field = map.field;
  return grid;
}

DeepCaps::Cell DeepCaps::add_cell(int64_t index, int64_t dim) {
  const auto add = [&](int64_t place, int64_t stride) {
    const std::string layer = fmt::format("caps{}{}", index, place);
    const auto options = Conv2dCapsOptions(plan().map().channels, options_.types, dim)
                             .stride(stride)
                             .bias(options_.conv_bias)
                             .kernels(context().kernels);
    plan().conv2d_caps(layer, options);
    add_prunable(layer);
    return register_module(layer, Conv2dCaps(options));
  };
  Cell cell;
  cell.down = add(0, 2);
  const FeatureMap input = plan().map();  // of both ways through the cell
  if (index + 1 < kCells) {
    cell.skip = add(1, 1);
  } else {
    Conv3dRouting routing = options_.conv3d;
    routing.kernels = context().kernels;
    const std::string layer = fmt::format("caps{}1", index);
    const auto options = Conv3dCapsOptions(options_.types, dim)
                             .depth(options_.conv3d_depth)
                             .conv_bias(options_.conv3d_conv_bias)
                             .bias(options_.conv3d_bias)
                             .routing(routing);
    plan().conv3d_caps(layer, options);
    add_prunable(layer);
    routed_grid_ = grid_of(input, 0);
    announce({layer, options_.types, options_.types, routing.iterations, /*convolutional=*/true});
    cell.routed = register_module(layer, Conv3dCaps(options));
  }
  plan().continue_from(input);
  cell.second = add(2, 1);
  cell.third = add(3, 1);
  return cell;
}

void DeepCaps::initialise_as_keras() {
  for (const auto& item : named_parameters()) {
    const std::string& name = item.key();
    const Tensor& tensor = item.value();
    if (name == "class.weight") {
      // Keras' W is [J, I, Dout, Din]. Its fans are the last two dimensions, times J·I.
      const int64_t pairs = tensor.size(0) * tensor.size(1);
      glorot_uniform_(tensor, pairs * tensor.size(2), pairs * tensor.size(3));
    } else if (name == "class.bias") {
      glorot_uniform_(tensor, tensor.size(0), tensor.size(1));
    } else if (tensor.dim() == 5) {
      he_normal_(tensor, tensor[0].numel());
    } else if (tensor.dim() == 4) {
      glorot_uniform_(tensor, tensor[0].numel(), tensor.size(0) * tensor[0][0].numel());
    } else if (name == "conv1.bias") {
      tensor.detach().zero_();
    }
  }
}

Tensor DeepCaps::capsules_of(const Tensor& map) const {
  const Tensor capsules = map.unflatten(1, {options_.types, kCapsuleDim})
                              .permute({0, 3, 4, 1, 2})  // [B, h, w, types, 8]
                              .flatten(1, 3);
  return capsules.scalar_type() == torch::kBFloat16 ? capsules.to(torch::kFloat32) : capsules;
}

std::string DeepCaps::describe_children(NetworkGraph& graph) const {
  std::string x = add_convolution(graph, "conv1", *conv1_, kGraphInput);
  if (options_.relu) x = add_relu(graph, "conv1.relu", x);
  x = add_batch_norm(graph, "bn1", options_.norm_epsilon, x);
  if (options_.squash_conv1)
    x = add_squash(graph, "conv1.squash", options_.conv_channels, /*dim=*/1, kSquashEpsilon, x);
  std::string third, fourth;
  for (size_t index = 0; index < cells_.size(); ++index) {
    const Cell& cell = cells_[index];
    const auto layer = [&](int64_t place) { return fmt::format("caps{}{}", index, place); };
    x = add_conv2d_caps(graph, layer(0), *cell.down, x);
    const std::string skip = cell.routed.is_empty()
                                 ? add_conv2d_caps(graph, layer(1), *cell.skip, x)
                                 : add_conv3d_caps(graph, layer(1), *cell.routed, x);
    x = add_conv2d_caps(graph, layer(2), *cell.second, x);
    x = add_conv2d_caps(graph, layer(3), *cell.third, x);
    x = graph.add({"add", fmt::format("cell{}", index), {x, skip}});
    third = fourth;
    fourth = x;
  }
  const auto capsules = [&](const std::string& map) {
    GraphNode node{"capsules", map + ".capsules", {map}};
    node.numbers = {{"types", options_.types}, {"dim", kCapsuleDim}};
    node.words = {{"order", "type-last"}};
    return graph.add(std::move(node));
  };
  const bool third_first = options_.third_cell == DeepCapsOptions::ThirdCell::kFirst;
  const std::string before = capsules(third_first ? third : fourth);
  const std::string after = capsules(third_first ? fourth : third);
  return graph.add({"concatenate", "children", {before, after}});
}

Tensor DeepCaps::children(const Tensor& images, RoutingRecorder& recorder) {
  Tensor x = convolve(*conv1_, images, context().kernels);
  if (options_.relu) x = torch::relu(x);
  x = batch_norm(*bn1_, x);
  if (options_.squash_conv1)
    x = squash_channels(x, options_.conv_channels, /*dim=*/1, {Squash::Form::kNorm, kSquashEpsilon},
                        context().kernels);

  Tensor third, fourth;
  for (auto& cell : cells_) {
    x = cell.down->forward(x);
    Tensor skip;
    if (cell.routed.is_empty()) {
      skip = cell.skip->forward(x);
    } else {
      const RoutingResult routed = cell.routed->forward(x, recorder.next());
      skip = routed.poses.flatten(1, 2);
      if (recorder.tracing()) {
        const int64_t height = x.size(2), width = x.size(3);
        // The window of a position holds the types at that position.
        const Tensor windows = torch::arange(height * width * options_.types, torch::kInt64)
                                   .view({height * width, options_.types});
        recorder.record("caps31", capsules_of(x), routed, {routed_grid_}, windows);
      }
    }
    x = cell.third->forward(cell.second->forward(x)) + skip;
    third = fourth;
    fourth = x;
  }
  return options_.third_cell == DeepCapsOptions::ThirdCell::kFirst
             ? torch::cat({capsules_of(third), capsules_of(fourth)}, 1)
             : torch::cat({capsules_of(fourth), capsules_of(third)}, 1);
}

}  // namespace remcaps
