#include "remcaps/tensors/compressed.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"

namespace remcaps {
namespace {

using nlohmann::json;
using Shapes = std::map<std::string, std::vector<int64_t>>;

constexpr const char* kShapes = "packed";
constexpr size_t kBits = 8;

size_t bitmap_bytes(size_t places) {
  return (places + kBits - 1) / kBits;
}

// Neither +0 nor -0.
bool is_nonzero(uint16_t half) {
  return (half & 0x7fff) != 0;
}

// Half precision: 1 bit of sign, 5 of exponent (bias 15), 10 of fraction.
float to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0) {  // zero, or too small for an exponent: a multiple of 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

std::vector<uint16_t> halves_of(const TensorView& tensor) {
  std::vector<uint16_t> halves(tensor.bytes.size() / sizeof(uint16_t));
  if (!halves.empty()) std::memcpy(halves.data(), tensor.bytes.data(), tensor.bytes.size());
  return halves;
}

FloatTensor dense_floats(const TensorView& tensor) {
  const std::vector<uint16_t> halves = halves_of(tensor);
  FloatTensor result{tensor.shape, std::vector<float>(halves.size())};
  std::transform(halves.begin(), halves.end(), result.values.begin(), to_float);
  return result;
}

// The places of the bits that are set, in ascending order.
std::vector<uint32_t> marked_places(std::span<const std::byte> bits) {
  std::vector<uint32_t> places;
  for (size_t k = 0; k < bits.size(); ++k)
    for (auto byte = std::to_integer<unsigned>(bits[k]); byte != 0; byte &= byte - 1)
      places.push_back(static_cast<uint32_t>(k * kBits) +
                       static_cast<uint32_t>(std::countr_zero(byte)));
  return places;
}

// Puts the parts of one tensor together.
SparseTensor sparse_tensor(const TensorViews& tensors, const std::string& name,
                           const std::vector<int64_t>& shape, const std::string& source) {
  const auto find = [&](const std::string& part) {
    const auto found = tensors.find(part);
    check(found != tensors.end(), "{}: its packed tensor {} has no {}", source, name, part);
    return found->second;
  };
  const TensorView bits = find(name + ".bits"), values = find(name + ".values");
  constexpr int64_t kMostPlaces = int64_t{1} << 32;
  int64_t places = 1;
  for (const int64_t size : shape) {
    check(size > 0 && size <= kMostPlaces / places, "{}: {} cannot have the shape [{}]", source,
          name, fmt::join(shape, ", "));
    places *= size;
  }
  const auto count = static_cast<size_t>(places);
  check(bits.type == ElementType::kUInt8 && bits.shape.size() == 1 &&
            bits.bytes.size() == bitmap_bytes(count),
        "{}: the bitmap of {} has {} bytes; expected {}", source, name, bits.bytes.size(),
        bitmap_bytes(count));
  check(values.type == ElementType::kFloat16, "{}: {}.values is {}; expected F16", source, name,
        type_name(values.type));
  SparseTensor result{shape, marked_places(bits.bytes), {}};
  const std::vector<uint16_t> halves = halves_of(values);
  check(values.shape.size() == 1 && halves.size() == result.places.size() &&
            (halves.empty() || result.places.back() < count),
        "{}: {} has {} values; its bitmap marks {}", source, name, halves.size(),
        result.places.size());
  result.values.resize(halves.size());
  std::transform(halves.begin(), halves.end(), result.values.begin(), to_float);
  return result;
}

Shapes parse_shapes(const std::string& text, const std::string& source) {
  try {
    return json::parse(text).get<Shapes>();
  } catch (const json::exception&) {
    fail("{}: its metadata \"{}\" does not give shapes by name", source, kShapes);
  }
}

}  // namespace

std::optional<SparseHalves> compress_halves(std::span<const uint16_t> halves) {
  const auto kept = static_cast<size_t>(std::count_if(halves.begin(), halves.end(), is_nonzero));
  const size_t saved = (halves.size() - kept) * sizeof(uint16_t);
  if (saved <= bitmap_bytes(halves.size())) return std::nullopt;
  SparseHalves compressed;
  compressed.bits.resize(bitmap_bytes(halves.size()));
  compressed.values.reserve(kept);
  for (size_t place = 0; place < halves.size(); ++place) {
    if (!is_nonzero(halves[place])) continue;
    compressed.bits[place / kBits] |= static_cast<uint8_t>(1U << place % kBits);
    compressed.values.push_back(halves[place]);
  }
  return compressed;
}

FloatTensor SparseTensor::dense() const {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  FloatTensor result{shape, std::vector<float>(count)};
  for (size_t n = 0; n < places.size(); ++n) result.values[places[n]] = values[n];
  return result;
}

Metadata compressed_metadata(const Shapes& shapes) {
  return {{kShapes, json_text(json(shapes))}};
}

DecompressedTensors decompress(const TensorViews& tensors, const Metadata& metadata,
                               const std::string& source) {
  DecompressedTensors decompressed;
  decompressed.others = tensors;
  const auto shapes = metadata.find(kShapes);
  if (shapes == metadata.end())
    return decompressed;  // not compressed: half precision stays what it is
  for (const auto& [name, shape] : parse_shapes(shapes->second, source)) {
    decompressed.floats[name] = sparse_tensor(decompressed.others, name, shape, source).dense();
    decompressed.others.erase(name + ".bits");
    decompressed.others.erase(name + ".values");
  }
  for (auto tensor = decompressed.others.begin(); tensor != decompressed.others.end();) {
    if (tensor->second.type != ElementType::kFloat16) {
      ++tensor;
      continue;
    }
    decompressed.floats.emplace(tensor->first, dense_floats(tensor->second));
    tensor = decompressed.others.erase(tensor);
  }
  return decompressed;
}

CompressedReader::CompressedReader(const SafetensorsBytes& file) : file_(file) {
  const auto shapes = file.metadata().find(kShapes);
  if (shapes != file.metadata().end()) shapes_ = parse_shapes(shapes->second, source());
}

FloatTensor CompressedReader::read(const std::string& name) const {
  if (const auto sparse = read_sparse(name)) return sparse->dense();
  const TensorView& tensor = file_.tensor(name);
  if (tensor.type == ElementType::kFloat16) return dense_floats(tensor);
  check(tensor.type == ElementType::kFloat32, "{}: {} is {}; expected F32 or F16", source(), name,
        type_name(tensor.type));
  FloatTensor result{tensor.shape, std::vector<float>(tensor.bytes.size() / sizeof(float))};
  if (!result.values.empty())
    std::memcpy(result.values.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

std::optional<SparseTensor> CompressedReader::read_sparse(const std::string& name) const {
  const auto compressed = shapes_.find(name);
  if (compressed == shapes_.end()) return std::nullopt;
  return sparse_tensor(file_.tensors(), name, compressed->second, source());
}

}  // namespace remcaps
