#include "remcaps/report/html_report_couplings.h"

#include "remcaps/base/error.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/ops/quantize.h"

namespace remcaps {

namespace {

constexpr int64_t kCodes = 256;
// A layer with more couplings than this, over all images of the explorer, is not kept whole.
constexpr int64_t kMostCouplings = 64'000'000;

Tensor to_bytes(const Tensor& values, double scale) {
  return values.to(torch::kFloat).mul(scale).round().clamp(0, 255).to(torch::kUInt8).cpu();
}

// Little-endian 16-bit numbers: torch 1.13 has no such type.
std::string sixteen_bits(const Tensor& values) {
  const Tensor scaled = values.to(torch::kCPU, torch::kFloat)
                            .mul(65535)
                            .round()
                            .clamp(0, 65535)
                            .to(torch::kLong)
                            .contiguous();
  std::string bytes;
  bytes.reserve(static_cast<size_t>(scaled.numel()) * 2);
  for (int64_t k = 0; k < scaled.numel(); ++k) {
    const int64_t value = scaled.data_ptr<int64_t>()[k];
    bytes += static_cast<char>(value & 0xff);
    bytes += static_cast<char>(value >> 8);
  }
  return bytes;
}

// The encoded text, if it fits into the bytes that are left.
std::optional<std::string> encode_within(const Tensor& bytes, size_t& left) {
  std::string encoded = encode_bytes(bytes_of(bytes));
  if (encoded.size() > left) return std::nullopt;
  left -= encoded.size();
  return encoded;
}

}  // namespace

CouplingCodes::CouplingCodes(const std::optional<Quantizer>& quantizer) {
  if (!quantizer || quantizer->levels() > kCodes) {
    for (int64_t code = 0; code < kCodes; ++code)
      decode_.push_back(static_cast<double>(code) / (kCodes - 1));
    return;
  }
  quantizer_ = quantizer;
  codes_per_level_ = kCodes / quantizer->levels();
  for (int64_t level = 0; level < quantizer->levels(); ++level) {
    const double low = quantizer->edges()[static_cast<size_t>(level)];
    const double high = quantizer->edges()[static_cast<size_t>(level) + 1];
    for (int64_t step = 0; step < codes_per_level_; ++step) {
      const double part = (static_cast<double>(step) + 0.5) / static_cast<double>(codes_per_level_);
      decode_.push_back(std::clamp(low + part * (high - low), 0.0, 1.0));
    }
  }
}

Tensor CouplingCodes::levels_of(const Tensor& quantized_couplings) const {
  if (!quantizer_) return torch::zeros(quantized_couplings.sizes(), torch::kUInt8);
  return level_indices(quantized_couplings, *quantizer_).to(torch::kCPU, torch::kUInt8);
}

Tensor CouplingCodes::encode(const Tensor& levels, const Tensor& couplings) const {
  const Tensor exact = couplings.to(torch::kCPU, torch::kDouble);
  if (!quantizer_) return to_bytes(exact, kCodes - 1);
  const Tensor edges = torch::tensor(quantizer_->edges(), torch::kDouble);
  const Tensor level = levels.to(torch::kLong);
  const Tensor low = edges.take(level), high = edges.take(level + 1);
  // Behind a quantized layer the plain pass can give another level. The quantized pass decides: the
  // nearest code of its level is taken.
  const Tensor step = ((exact - low) / (high - low) * codes_per_level_)
                          .floor()
                          .clamp(0, static_cast<double>(codes_per_level_ - 1));
  return (level * codes_per_level_ + step.to(torch::kLong)).to(torch::kUInt8);
}

ExplorerData::ExplorerData(std::vector<std::optional<Quantizer>> quantizers, int64_t samples)
    : samples_(samples) {
  for (const auto& quantizer : quantizers) layers_.emplace_back(CouplingCodes(quantizer));
}

void ExplorerData::add_quantized(const Forward& forward, const Tensor& rows,
                                 const std::vector<int64_t>& map_size, const std::string& network,
                                 ImageShape input) {
  const torch::NoGradGuard no_grad;
  check(forward.routings.size() == layers_.size(), "{} traced routing layers; expected {}",
        forward.routings.size(), layers_.size());
  const Tensor on_device = rows.to(forward.activations.device());
  const Tensor classes = predicted_classes(forward);
  predicted_.push_back(classes.index_select(0, on_device).cpu());
  for (size_t l = 0; l < layers_.size(); ++l) {
    const RoutingTrace& trace = forward.routings[l];
    Layer& layer = layers_[l];
    if (trace.convolutional()) continue;
    const bool last = l + 1 == layers_.size();
    const bool whole = trace.coupling[0].numel() * samples_ <= kMostCouplings;
    layer.kept = whole || last;
    layer.has_place = remcaps::has_place(trace);
    layer.predicted_only = !whole;
    if (!layer.kept) continue;
    Tensor coupling = trace.coupling.index_select(0, on_device);
    if (layer.predicted_only) coupling = couplings_to(coupling, predicted_.back());
    layer.levels.push_back(layer.codes.levels_of(coupling));
  }
  if (forward.routings.back().contribution.defined()) {
    parts_layer_ = first_chained_layer(forward.routings);
    const Evidence found = evidence_for(forward.routings, parts_layer_, classes);
    contributions_.push_back(found.children.index_select(0, on_device).cpu());
    evidence_.push_back(found.total().index_select(0, on_device).cpu());
    bias_.push_back(found.bias.index_select(0, on_device).cpu());
  }
  if (std::none_of(forward.routings.begin(), forward.routings.end(), has_place)) return;
  const size_t at = saliency_layer(forward.routings, network);
  const Tensor map = saliency(forward.routings, at, classes, input).map;
  const Tensor shown = map.index_select(0, on_device).unsqueeze(1);
  maps_.push_back(torch::adaptive_avg_pool2d(shown, map_size).squeeze(1).cpu());
}

nlohmann::json ExplorerData::contributions_json(PageBlobs& blobs, size_t& left) const {
  if (contributions_.empty()) return nullptr;
  const auto numbers = [](const Tensor& values) {
    const Tensor exact = values.to(torch::kDouble).contiguous();
    return std::vector<double>(exact.data_ptr<double>(), exact.data_ptr<double>() + exact.numel());
  };
  const Tensor values = torch::cat(contributions_);  // [S, I]
  const Tensor scale = values.abs().amax(1).clamp_min(1e-12);
  const Tensor codes =
      values.div(scale.unsqueeze(1)).mul(127).round().add(128).to(torch::kUInt8).contiguous();
  size_t half = left / 2;
  const size_t before = half;
  std::optional<std::string> encoded = encode_within(codes, half);
  if (!encoded) return nullptr;
  left -= before - half;
  return {{"layer", parts_layer_},
          {"values", blobs.add(std::move(*encoded), "uint8", codes.sizes().vec())},
          {"scale", numbers(scale)},
          {"positive", numbers(values.clamp_min(0).sum(1))},
          {"evidence", numbers(torch::cat(evidence_))},
          {"bias", numbers(torch::cat(bias_))}};
}

void ExplorerData::add_plain(const Forward& forward, const Tensor& rows) {
  const torch::NoGradGuard no_grad;
  const Tensor on_device = rows.to(forward.activations.device());
  const size_t batch = class_activations_.size();
  class_activations_.push_back(forward.activations.index_select(0, on_device).cpu());
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    if (!layer.kept) continue;
    const RoutingTrace& trace = forward.routings[l];
    Tensor coupling = trace.coupling.index_select(0, on_device);
    if (layer.predicted_only) coupling = couplings_to(coupling, predicted_.at(batch));
    layer.couplings.push_back(layer.codes.encode(layer.levels.at(batch), coupling));
    layer.activations.push_back(to_bytes(trace.child_activations.index_select(0, on_device), 255));
  }
}

nlohmann::json ExplorerData::to_json(PageBlobs& blobs, size_t budget) const {
  const Tensor predicted = torch::cat(predicted_).contiguous();
  const Tensor activations = torch::cat(class_activations_);
  nlohmann::json explorer;
  std::string lengths_of_classes = encode_bytes(sixteen_bits(activations));
  size_t left = budget - std::min(budget, lengths_of_classes.size());
  explorer["activations"] =
      blobs.add(std::move(lengths_of_classes), "uint16", activations.sizes().vec());
  explorer["predicted"] = std::vector<int64_t>(predicted.data_ptr<int64_t>(),
                                               predicted.data_ptr<int64_t>() + predicted.numel());

  explorer["contributions"] = contributions_json(blobs, left);
  bool unbroken = true;  // a layer is useful only if all layers above it are kept
  bool place_kept = false;
  std::vector<nlohmann::json> layers(layers_.size());
  for (size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    layers[l] = {{"columns", "none"},
                 {"couplings", nullptr},
                 {"decode", nlohmann::json::array()},
                 {"activations", nullptr}};
    unbroken = unbroken && layer.kept;
    if (!unbroken) continue;
    const Tensor lengths = torch::cat(layer.activations).contiguous();
    std::optional<std::string> encoded_lengths = encode_within(lengths, left);
    unbroken = encoded_lengths.has_value();
    if (!unbroken) continue;
    Tensor codes = torch::cat(layer.couplings).contiguous();
    std::string columns = layer.predicted_only ? "predicted" : "all";
    std::optional<std::string> encoded = encode_within(codes, left);
    if (!encoded && l + 1 == layers_.size() && !layer.predicted_only) {
      columns = "predicted";
      codes = couplings_to(codes, predicted).contiguous();
      encoded = encode_within(codes, left);
    }
    unbroken = encoded.has_value();
    if (!unbroken) {
      left += encoded_lengths->size();  // alone they are of no use
      continue;
    }
    layers[l]["columns"] = columns;
    layers[l]["couplings"] = blobs.add(std::move(*encoded), "uint8", codes.sizes().vec());
    layers[l]["decode"] = layer.codes.decode();
    layers[l]["activations"] =
        blobs.add(std::move(*encoded_lengths), "uint8", lengths.sizes().vec());
    place_kept = place_kept || layer.has_place;
  }
  explorer["layers"] = std::move(layers);

  explorer["saliency"] = nullptr;
  explorer["saliency_max"] = std::vector<double>();
  if (maps_.empty() || place_kept) return explorer;
  const Tensor maps = torch::cat(maps_);  // [S, H, W]
  const Tensor peak = maps.amax({1, 2});
  const Tensor bytes = to_bytes(maps / peak.clamp_min(1e-12).view({-1, 1, 1}), 255).contiguous();
  std::optional<std::string> encoded = encode_within(bytes, left);
  if (!encoded) return explorer;
  explorer["saliency"] = blobs.add(std::move(*encoded), "uint8", bytes.sizes().vec());
  const Tensor exact = peak.to(torch::kDouble).contiguous();
  explorer["saliency_max"] =
      std::vector<double>(exact.data_ptr<double>(), exact.data_ptr<double>() + exact.numel());
  return explorer;
}

}  // namespace remcaps
