#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "remcaps/kernels/convolution/convolution.h"
#include "remcaps/kernels/convolution/grouped_convolution.h"
#include "remcaps/kernels/convolution/int8_convolution.h"
#include "remcaps/kernels/convolution/lane_convolution.h"
#include "remcaps/kernels/convolution/sparse_convolution.h"
#include "remcaps/kernels/convolution/tile_product.h"
#include "remcaps/runtime/operation.h"

namespace remcaps::runtime {
namespace {

using kernels::ConvolutionShape;

constexpr int64_t kFewChannels = 4;  // an image
// The largest share of weights with which a sparse convolution is faster than a dense one. The
// windows of an image are copied for the dense one, too.
constexpr double kSparseImage = 0.5, kSparseMap = 0.35;
constexpr int64_t kMaxKernel = 4096;

struct Layer {
  ConvolutionShape shape;  ///< of one image
  int64_t groups = 1;
  bool relu = false;
  std::vector<float> weight, bias;
  std::optional<SparseTensor> left;  ///< in place of the weight: what pruning has left of it
  ByteTensor bytes = {};             ///< in place of the weight: what the CPU multiplies as it is

  bool has_bytes() const { return !bytes.values.empty(); }
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
  ConvolutionShape for_batch(int64_t batch) const {
    ConvolutionShape result = shape;
    result.batch = batch;
    return result;
  }
  void scale_filters(const std::vector<float>& scales) {
    const auto filter = static_cast<size_t>(shape.channels / groups * shape.taps());
    for (size_t n = 0; n < weight.size(); ++n) weight[n] *= scales[n / filter];
    for (size_t f = 0; f < bytes.scales.size(); ++f) bytes.scales[f] *= scales[f];
    if (!left) return;
    for (size_t n = 0; n < left->values.size(); ++n)
      left->values[n] *= scales[left->places[n] / filter];
  }
};

// weight <- weight * scale, bias <- bias * scale + shift of the batch norm behind it.
void fold_norm(const NodeReader& reader, Layer& layer) {
  const std::vector<int64_t> size = {layer.shape.filters};
  const auto read = [&](const char* role) {
    return reader.weights().read(reader.node(), role, size);
  };
  const std::vector<float> weight = read("norm_weight"), bias = read("norm_bias"),
                           mean = read("norm_mean"), variance = read("norm_variance");
  const float epsilon = reader.real("norm_epsilon", 0, 1);
  layer.bias.resize(static_cast<size_t>(layer.shape.filters), 0.0F);
  std::vector<float> scales(weight.size());
  for (size_t f = 0; f < weight.size(); ++f) {
    scales[f] = weight[f] / std::sqrt(variance[f] + epsilon);
    reader.require(std::isfinite(scales[f]), "a variance is below 0");
    layer.bias[f] = (layer.bias[f] - mean[f]) * scales[f] + bias[f];
  }
  layer.scale_filters(scales);
}

// Whether a sum of products of bytes may need more than 32 bits.
bool sum_may_overflow(const ConvolutionShape& shape) {
  constexpr int64_t kLargest = 255 * 128, kMost = (int64_t{1} << 31) - 1;
  return shape.channels * shape.taps() > kMost / kLargest;
}

Layer read_layer(const NodeReader& reader) {
  const ValueShape map = reader.map();
  Layer layer;
  layer.groups = reader.integer("groups", 1, 1 << 16);
  if (layer.groups == 1)
    layer.left = reader.weights().read_sparse(
        reader.node(), "weight", map.channels <= kFewChannels ? kSparseImage : kSparseMap);
  if (layer.groups == 1 && !layer.left && kernels::byte_product() != nullptr)
    layer.bytes = reader.weights().read_bytes(reader.node(), "weight").value_or(ByteTensor());
  FloatTensor weight;
  if (!layer.left && !layer.has_bytes()) weight = reader.weights().read(reader.node(), "weight");
  const std::vector<int64_t>& size = layer.left          ? layer.left->shape
                                     : layer.has_bytes() ? layer.bytes.shape
                                                         : weight.shape;
  reader.require(size.size() == 4 && map.channels % layer.groups == 0 &&
                     size[0] % layer.groups == 0 && size[0] > 0 &&
                     size[1] == map.channels / layer.groups &&
                     std::max(size[2], size[3]) <= kMaxKernel && std::min(size[2], size[3]) >= 1,
                 "its weight does not fit the map");
  ConvolutionShape& shape = layer.shape;
  shape = {.batch = 1,
           .height = map.height,
           .width = map.width,
           .channels = map.channels,
           .filters = size[0],
           .kernel_height = size[2],
           .kernel_width = size[3],
           .stride_y = reader.integer("stride_y", 1, kMaxKernel),
           .stride_x = reader.integer("stride_x", 1, kMaxKernel),
           .padding_y = reader.integer("padding_y", 0, kMaxKernel),
           .padding_x = reader.integer("padding_x", 0, kMaxKernel)};
  reader.require(shape.kernel_height <= shape.height + 2 * shape.padding_y &&
                     shape.kernel_width <= shape.width + 2 * shape.padding_x,
                 "its kernel is larger than the map");
  reader.checked(ValueShape::map(shape.channels, shape.height + 2 * shape.padding_y,
                                 shape.width + 2 * shape.padding_x));
  if (layer.left && shape.taps() > kernels::cpu::SparseWeights::kMostTaps) {
    weight = layer.left->dense();
    layer.left.reset();
  }
  if (layer.has_bytes() && (kernels::cpu::has_short_rows(shape) || sum_may_overflow(shape))) {
    weight = reader.weights().read(reader.node(), "weight");
    layer.bytes = {};
  }
  layer.weight = std::move(weight.values);
  layer.bias = reader.weights().read_if_there(reader.node(), "bias", {shape.filters});
  layer.relu = reader.integer("relu", 0, 1, 0) == 1;
  if (reader.node().numbers.contains("norm_epsilon")) fold_norm(reader, layer);
  return layer;
}

ValueShape result_shape(const ConvolutionShape& shape) {
  return ValueShape::map(shape.filters, shape.out_height(), shape.out_width());
}

class SparseOperation final : public Operation {
 public:
  explicit SparseOperation(Layer layer)
      : weights_(layer.shape, layer.left->places, layer.left->values),
        starts_(kernels::cpu::sparse_starts(layer.shape, weights_)),
        layer_(std::move(layer)) {
    layer_.left.reset();
  }
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    Value out = Value::make(shape, map.batch);
    const kernels::ConvolutionShape problem = layer_.for_batch(map.batch);
    if (map.batch == kernels::cpu::kLaneImages && kernels::cpu::LaneWeights::can_be_made(problem)) {
      std::call_once(lanes_made_, [&] { lanes_.emplace(problem, weights_); });
      out.strides = kernels::cpu::lane_strides(shape.height, shape.width);
      kernels::cpu::lane_convolution(problem, map.strides, map.data.get(), *lanes_,
                                     layer_.bias_or_null(), layer_.relu, out.data.get());
    } else {
      kernels::cpu::sparse_convolution(problem, map.strides, map.data.get(), weights_, starts_,
                                       layer_.bias_or_null(), layer_.relu, out.data.get());
    }
    return out;
  }

 private:
  kernels::cpu::SparseWeights weights_;
  kernels::cpu::SparseStarts starts_;
  mutable std::once_flag lanes_made_;  // networks that see no batches do without
  mutable std::optional<kernels::cpu::LaneWeights> lanes_;
  Layer layer_;
};

class ByteOperation final : public Operation {
 public:
  explicit ByteOperation(Layer layer)
      : filters_(layer.shape, layer.bytes.values, layer.bytes.scales), layer_(std::move(layer)) {
    layer_.bytes = {};
    wants_batches = true;
  }
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    Value out = Value::channels_last(shape, map.batch, shape.channels);
    kernels::cpu::byte_convolution(layer_.for_batch(map.batch), map.view(), filters_,
                                   layer_.bias_or_null(), layer_.relu, kernels::byte_product(),
                                   out.data.get());
    return out;
  }

 private:
  kernels::cpu::ByteFilters filters_;
  Layer layer_;
};

class GroupedOperation final : public Operation {
 public:
  explicit GroupedOperation(Layer layer) : layer_(std::move(layer)) {}
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    Value out = Value::make(shape, map.batch);
    kernels::cpu::grouped_convolution(layer_.for_batch(map.batch), layer_.groups, map.strides,
                                      map.data.get(), layer_.weight.data(), layer_.bias_or_null(),
                                      out.data.get());
    if (layer_.relu) kernels::cpu::leaky_relu(out.view(), 0.0F);
    return out;
  }

 private:
  Layer layer_;
};

// As many filters as the panels need: zeros fill them up.
Layer with_full_tiles(Layer layer) {
  const int64_t filters = layer.shape.filters, tile = kernels::tile_width();
  layer.shape.filters = kernels::pieces_of(filters, tile) * tile;
  layer.weight.resize(layer.weight.size() / static_cast<size_t>(filters) *
                      static_cast<size_t>(layer.shape.filters));
  if (!layer.bias.empty()) layer.bias.resize(static_cast<size_t>(layer.shape.filters));
  return layer;
}

class DenseOperation final : public Operation {
 public:
  explicit DenseOperation(Layer layer)
      : layer_(with_full_tiles(std::move(layer))),
        panels_(kernels::cpu::filter_panels(layer_.shape, layer_.weight.data())) {
    layer_.weight = {};
    wants_batches = true;
  }

  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    ConvolutionShape padded = layer_.for_batch(map.batch);
    padded.height += 2 * padded.padding_y;
    padded.width += 2 * padded.padding_x;
    padded.padding_y = padded.padding_x = 0;
    const bool unfolds = kernels::cpu::has_short_rows(padded);
    const bool has_padding = padded.height != map.shape.height || padded.width != map.shape.width;
    const bool lies_right = map.strides.channel == 1 && map.strides.pixel == map.shape.channels;
    Value copy;
    const Value* from = &map;
    if (has_padding || (!unfolds && !lies_right)) {
      copy = Value::channels_last(ValueShape::map(padded.channels, padded.height, padded.width),
                                  map.batch, padded.channels);
      kernels::cpu::copy_map(map.view(), copy.view());
      from = &copy;
    }
    Value out = Value::channels_last(shape, map.batch, padded.filters);
    if (unfolds) {
      const ConvolutionShape rows = kernels::cpu::unfolded(padded);
      const kernels::Buffer windows(rows.batch * rows.width * rows.channels);
      kernels::cpu::unfold_windows(padded, from->strides, from->data.get(), windows.get());
      kernels::cpu::convolution(rows, windows.get(), panels_, layer_.bias_or_null(),
                                out.data.get());
    } else {
      kernels::cpu::convolution(padded, from->data.get(), panels_, layer_.bias_or_null(),
                                out.data.get());
    }
    if (layer_.relu) kernels::cpu::leaky_relu(out.view(), 0.0F);
    return out;
  }

 private:
  Layer layer_;
  kernels::cpu::Panels panels_;
};

std::unique_ptr<Operation> operation_of(Layer layer) {
  if (layer.groups > 1) return std::make_unique<GroupedOperation>(std::move(layer));
  if (layer.left) return std::make_unique<SparseOperation>(std::move(layer));
  if (layer.has_bytes()) return std::make_unique<ByteOperation>(std::move(layer));
  return std::make_unique<DenseOperation>(std::move(layer));
}

}  // namespace

std::unique_ptr<Operation> make_convolution(const NodeReader& reader) {
  Layer layer = read_layer(reader);
  const ConvolutionShape& of = layer.shape;
  const ValueShape shape = reader.checked(result_shape(of));
  const SlidingWindow window{of.kernel_height, of.kernel_width, of.stride_y,
                             of.stride_x,      of.padding_y,    of.padding_x};
  std::unique_ptr<Operation> operation = operation_of(std::move(layer));
  operation->shape = shape;
  operation->window = window;
  return operation;
}

}  // namespace remcaps::runtime
