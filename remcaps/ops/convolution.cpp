#include "remcaps/ops/convolution.h"

#include "remcaps/base/error.h"
#include "remcaps/kernels/convolution/bf16_tiles.h"
#include "remcaps/kernels/convolution/tile_product.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/pixel_layer.h"
#include "remcaps/ops/strip_convolution.h"
#include "remcaps/ops/tensor_core_copy.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

using torch::Tensor;

// With at most this many channels a map is an image.
constexpr int64_t kFewChannels = 4;

// Laying out the weights at every call pays only if at least this many places share them, and not
// for a single small map.
constexpr int64_t kManyPlaces = 128;

// Shares of the weights up to which a sparse convolution pays. With many places, a fifth of the
// weights takes as long as all of them in panels, and a third as long as all of them in oneDNN,
// which padded layers use. With a single small map it is a third and a half.
constexpr double kFew = 0.25;
constexpr double kSome = 0.35;
constexpr double kHalf = 0.5;

// Strips pay for windows of at least this many places.
constexpr int64_t kLargeWindow = 25;
constexpr int64_t kStripFilters = 8;  // filters are a multiple of it

thread_local bool bf16_is_wanted = false;

bool wants_gradient(const Tensor& tensor) {
  return torch::GradMode::is_enabled() && tensor.defined() && tensor.requires_grad();
}

bool has_dense_windows(const ConvolutionLayer& layer) {
  return layer.dilation == std::array<int64_t, 2>{1, 1} && layer.groups == 1;
}

bool has_no_padding(std::array<int64_t, 2> padding) {
  return padding == std::array<int64_t, 2>{0, 0};
}

bool has_fitting_bias(const ConvolutionLayer& layer) {
  const Tensor &weight = layer.weight, &bias = layer.bias;
  return !bias.defined() ||
         (bias.device() == weight.device() && bias.scalar_type() == weight.scalar_type() &&
          bias.sizes() == torch::IntArrayRef{weight.size(0)});
}

// Where this is false, libtorch's own convolution says what is wrong.
bool fits_in(const ConvolutionLayer& layer, const Tensor& map) {
  const Tensor& weight = layer.weight;
  const auto window_fits = [&](size_t i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    return layer.stride[i] > 0 && layer.padding[i] >= 0 && layer.dilation[i] > 0 &&
           map.size(dim) + 2 * layer.padding[i] >= layer.dilation[i] * (weight.size(dim) - 1) + 1;
  };
  return map.dim() == 4 && weight.dim() == 4 && weight.numel() > 0 &&
         weight.device() == map.device() && has_fitting_bias(layer) &&
         map.size(1) == weight.size(1) * layer.groups && window_fits(0) && window_fits(1);
}

// Bfloat16 and channels-last. The map of an earlier convolution already is bfloat16, and its
// gradient stays so.
Tensor for_tensor_cores(const Tensor& tensor) {
  return tensor.scalar_type() == torch::kBFloat16
             ? tensor.contiguous(torch::MemoryFormat::ChannelsLast)
             : tensor_core_copy(tensor);
}

Tensor plain_convolution(const Tensor& map, const ConvolutionLayer& layer) {
  return torch::conv2d(map, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation,
                       layer.groups);
}

Tensor tensor_core_convolution(const Tensor& map, const ConvolutionLayer& layer) {
  const Tensor sums =
      torch::conv2d(for_tensor_cores(map), for_tensor_cores(layer.weight),
                    /*bias=*/{}, layer.stride, layer.padding, layer.dilation, layer.groups);
  return layer.bias.defined() ? add_channel_bias(sums, layer.bias) : sums;
}

Tensor run(ConvolutionPath path, const ConvolutionFacts& facts, const Tensor& map,
           const ConvolutionLayer& layer) {
  const auto with_relu = [&](const Tensor& result) {
    return layer.relu ? torch::relu(result) : result;
  };
  switch (path) {
    case ConvolutionPath::kPlain:
      return with_relu(plain_convolution(map, layer));
    case ConvolutionPath::kPanels:
      return with_relu(panel_convolution(map, layer.weight, layer.bias, layer.stride,
                                         facts.any_gradient ? nullptr : layer.filters));
    case ConvolutionPath::kBf16Tiles:
      return bf16_convolution(map, layer.weight, layer.bias, layer.stride, layer.relu);
    case ConvolutionPath::kSparse:
      return sparse_convolution(map, *layer.sparse, layer.bias, layer.stride, layer.padding,
                                layer.relu);
    case ConvolutionPath::kPixels:
      return pixel_layer({layer.stride, layer.padding,
                          facts.autocast ? torch::kBFloat16 : torch::kFloat32, layer.relu},
                         map, layer.weight, layer.bias);
    case ConvolutionPath::kStrips:
      return with_relu(strip_convolution({layer.stride, layer.padding},
                                         facts.autocast ? for_tensor_cores(map) : map, layer.weight,
                                         layer.bias));
    case ConvolutionPath::kTensorCores:
      return with_relu(tensor_core_convolution(map, layer));
  }
  fail("convolution: no path {}", static_cast<int>(path));
}

}  // namespace

const char* path_name(ConvolutionPath path) {
  switch (path) {
    case ConvolutionPath::kPlain:
      return "plain";
    case ConvolutionPath::kPanels:
      return "panels";
    case ConvolutionPath::kBf16Tiles:
      return "bf16 tiles";
    case ConvolutionPath::kSparse:
      return "sparse";
    case ConvolutionPath::kPixels:
      return "pixels";
    case ConvolutionPath::kStrips:
      return "strips";
    case ConvolutionPath::kTensorCores:
      return "tensor cores";
  }
  return "unknown";
}

int64_t ConvolutionFacts::places() const {
  if (height < kernel_height || width < kernel_width) return 0;
  const int64_t rows = (height - kernel_height) / stride[0] + 1;
  const int64_t columns = (width - kernel_width) / stride[1] + 1;
  return batch * rows * columns;
}

ConvolutionFacts facts_of(const Tensor& map, const ConvolutionLayer& layer, KernelPath kernels) {
  const Tensor& weight = layer.weight;
  check(
      (layer.filters == nullptr || layer.filters->sizes() == weight.sizes()) &&
          (layer.sparse == nullptr || torch::IntArrayRef(layer.sparse->sizes()) == weight.sizes()),
      "convolution: the packed weights are not those of weight [{}]",
      fmt::join(weight.sizes(), ", "));
  ConvolutionFacts facts;
  facts.kernels = kernels;
  facts.fits = fits_in(layer, map);
  if (!facts.fits) return facts;
  facts.channels = map.size(1);
  facts.filters = weight.size(0);
  facts.kernel_height = weight.size(2);
  facts.kernel_width = weight.size(3);
  facts.stride = layer.stride;
  facts.padding = layer.padding;
  facts.dense_windows = has_dense_windows(layer);
  facts.weight_type = weight.scalar_type();
  facts.packed_filters = layer.filters != nullptr;
  if (layer.sparse != nullptr) facts.density = layer.sparse->density();
  facts.batch = map.size(0);
  facts.height = map.size(2);
  facts.width = map.size(3);
  facts.map_type = map.scalar_type();
  facts.device = map.device().type();
  facts.map_gradient = wants_gradient(map);
  facts.any_gradient = facts.map_gradient || wants_gradient(weight) || wants_gradient(layer.bias);
  facts.bf16 = bf16_is_wanted;
  facts.autocast = cuda_autocast_is_on(map.device());
  facts.tf32 = tf32_is_on(map.device());
  facts.amx = cpu_has_bf16_convolution();
  facts.tile_width = kernels::tile_width();
  facts.strip_kernels = has_strip_kernels(weight);
  return facts;
}

bool has_kernel(ConvolutionPath path, const ConvolutionFacts& facts) {
  if (path == ConvolutionPath::kPlain) return true;
  if (!facts.fits || facts.batch == 0) return false;
  const bool is_gpu = facts.device == torch::kCUDA;
  const bool is_float32 = facts.map_type == torch::kFloat32 && facts.weight_type == torch::kFloat32;
  const bool is_dense = facts.dense_windows && has_no_padding(facts.padding);
  const bool is_on_cpu = facts.device == torch::kCPU && is_float32 && facts.dense_windows;
  switch (path) {
    case ConvolutionPath::kPlain:
      return true;
    case ConvolutionPath::kPanels: {
      const bool has_map_gradient =
          facts.channels % facts.tile_width == 0 &&
          !kernels::cpu::has_short_rows(
              {.channels = facts.channels, .kernel_width = facts.kernel_width});
      return is_on_cpu && is_dense && facts.filters % facts.tile_width == 0 &&
             (!facts.map_gradient || has_map_gradient);
    }
    case ConvolutionPath::kBf16Tiles:
      return is_on_cpu && is_dense && facts.amx && !facts.any_gradient;
    case ConvolutionPath::kSparse:
      return is_on_cpu && facts.density.has_value() && !facts.any_gradient;
    case ConvolutionPath::kPixels:
      return is_gpu && facts.dense_windows && facts.map_type == torch::kFloat32 &&
             !facts.map_gradient && facts.channels <= kFewChannels;
    case ConvolutionPath::kStrips:
      return is_gpu && facts.dense_windows && facts.strip_kernels &&
             facts.weight_type == torch::kFloat32 &&
             (facts.map_type == torch::kFloat32 || facts.map_type == torch::kBFloat16) &&
             facts.kernel_height >= facts.stride[0] && facts.filters % kStripFilters == 0;
    case ConvolutionPath::kTensorCores:
      return is_gpu;
  }
  return false;
}

ConvolutionPath choose(const ConvolutionFacts& facts) {
  if (facts.kernels == KernelPath::kReference) return ConvolutionPath::kPlain;
  const bool is_image = facts.channels <= kFewChannels;
  const bool has_many_places = facts.places() >= kManyPlaces;
  if (facts.bf16 && has_many_places && has_kernel(ConvolutionPath::kBf16Tiles, facts))
    return ConvolutionPath::kBf16Tiles;
  // The windows of an image have to be copied for panels too, so that sparse weights always pay.
  if (has_kernel(ConvolutionPath::kSparse, facts) &&
      (*facts.density <= kFew || is_image || !has_many_places))
    return ConvolutionPath::kSparse;
  if ((has_many_places || (facts.packed_filters && !facts.any_gradient)) &&
      has_kernel(ConvolutionPath::kPanels, facts))
    return ConvolutionPath::kPanels;
  // The products of these two may round more than float32 does.
  const bool may_round = facts.autocast || facts.tf32;
  if (may_round && has_kernel(ConvolutionPath::kPixels, facts)) return ConvolutionPath::kPixels;
  const bool strips_pay = facts.stride[0] > 1 && facts.stride[1] > 1 &&
                          facts.kernel_height * facts.kernel_width >= kLargeWindow;
  if (may_round && strips_pay && has_kernel(ConvolutionPath::kStrips, facts))
    return ConvolutionPath::kStrips;
  if (facts.autocast && has_kernel(ConvolutionPath::kTensorCores, facts))
    return ConvolutionPath::kTensorCores;
  return ConvolutionPath::kPlain;
}

Tensor convolution(const Tensor& map, const ConvolutionLayer& layer, KernelPath kernels) {
  const ConvolutionFacts facts = facts_of(map, layer, kernels);
  return run(choose(facts), facts, map, layer);
}

Tensor convolution_by(ConvolutionPath path, const Tensor& map, const ConvolutionLayer& layer) {
  const ConvolutionFacts facts = facts_of(map, layer, KernelPath::kFused);
  check(has_kernel(path, facts),
        "convolution: no kernel by {} for map [{}] of {} on {}, weight [{}] of {}, stride {}x{}, "
        "padding {}x{}",
        path_name(path), fmt::join(map.sizes(), ", "), c10::toString(map.scalar_type()),
        map.device().str(), fmt::join(layer.weight.sizes(), ", "),
        c10::toString(layer.weight.scalar_type()), layer.stride[0], layer.stride[1],
        layer.padding[0], layer.padding[1]);
  return run(path, facts, map, layer);
}

PackedForms choose_packing(const ConvolutionLayer& layer) {
  const Tensor& weight = layer.weight;
  if (!weight.is_cpu() || weight.scalar_type() != torch::kFloat32 || !has_dense_windows(layer))
    return {};
  const double left = weight.count_nonzero().item<double>() / static_cast<double>(weight.numel());
  const bool has_panels = has_no_padding(layer.padding) && PackedFilters::can_pack(weight);
  const bool is_first = weight.size(1) <= kFewChannels;
  return {.filters = has_panels && left > (is_first ? kHalf : kFew),
          .sparse = left <= (has_panels && !is_first ? kSome : kHalf)};
}

Bf16Convolutions::Bf16Convolutions(bool on) : was_on_(bf16_is_wanted) {
  if (on) bf16_is_wanted = true;
}

Bf16Convolutions::~Bf16Convolutions() {
  bf16_is_wanted = was_on_;
}

bool cpu_has_bf16_convolution() {
  return kernels::amx_tiles() != nullptr;
}

}  // namespace remcaps
