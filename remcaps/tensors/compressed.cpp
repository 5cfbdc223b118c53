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

template <typename T>
std::vector<T> copied(const TensorView& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// Values of one slice of the first dimension.
size_t slice_size(const std::vector<int64_t>& shape) {
  size_t size = 1;
  for (size_t d = 1; d < shape.size(); ++d) size *= static_cast<size_t>(shape[d]);
  return size;
}

// The scales of a tensor in 8 bits.
std::vector<float> scales_of(const TensorViews& tensors, const std::string& name,
                             const std::vector<int64_t>& shape, const std::string& source) {
  const auto found = tensors.find(name + ".scales");
  check(found != tensors.end() && found->second.type == ElementType::kFloat32 && !shape.empty() &&
            found->second.shape == std::vector<int64_t>{shape[0]},
        "{}: {} has 8 bits, but no scale for each of its slices", source, name);
  return copied<float>(found->second);
}

FloatTensor dense_floats(const TensorView& tensor) {
  const std::vector<uint16_t> halves = copied<uint16_t>(tensor);
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
  const bool halves = values.type == ElementType::kFloat16;
  check(halves || values.type == ElementType::kInt8, "{}: {}.values is {}; expected F16 or I8",
        source, name, type_name(values.type));
  SparseTensor result{shape, marked_places(bits.bytes), {}};
  const size_t kept = values.bytes.size() / element_size(values.type);
  check(values.shape.size() == 1 && kept == result.places.size() &&
            (kept == 0 || result.places.back() < count),
        "{}: {} has {} values; its bitmap marks {}", source, name, kept, result.places.size());
  result.values.resize(kept);
  if (halves) {
    const std::vector<uint16_t> from = copied<uint16_t>(values);
    std::transform(from.begin(), from.end(), result.values.begin(), to_float);
    return result;
  }
  const std::vector<int8_t> from = copied<int8_t>(values);
  const std::vector<float> scales = scales_of(tensors, name, shape, source);
  const size_t slice = slice_size(shape);
  for (size_t n = 0; n < kept; ++n)
    result.values[n] = static_cast<float>(from[n]) * scales[result.places[n] / slice];
  return result;
}

// Whether a bitmap and what is left take less space than all values; then makes both.
template <typename T, typename IsLeft>
bool drop_zeros(std::span<const T> all, const IsLeft& is_left, std::vector<uint8_t>& bits,
                std::vector<T>& values) {
  const auto kept = static_cast<size_t>(std::count_if(all.begin(), all.end(), is_left));
  if ((all.size() - kept) * sizeof(T) <= bitmap_bytes(all.size())) return false;
  bits.resize(bitmap_bytes(all.size()));
  values.reserve(kept);
  for (size_t place = 0; place < all.size(); ++place) {
    if (!is_left(all[place])) continue;
    bits[place / kBits] |= static_cast<uint8_t>(1U << place % kBits);
    values.push_back(all[place]);
  }
  return true;
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
  SparseHalves compressed;
  if (!drop_zeros(halves, is_nonzero, compressed.bits, compressed.values)) return std::nullopt;
  return compressed;
}

ByteTensor round_to_bytes(const FloatTensor& tensor) {
  ByteTensor bytes{tensor.shape, {}, {}};
  const size_t slice = slice_size(tensor.shape);
  bytes.values.reserve(tensor.values.size());
  for (size_t begin = 0; begin < tensor.values.size(); begin += slice) {
    const auto values = std::span(tensor.values).subspan(begin, slice);
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    const float scale = largest > 0 ? largest / 127 : 1;
    bytes.scales.push_back(scale);
    for (const float value : values)
      bytes.values.push_back(static_cast<int8_t>(std::lround(value / scale)));
  }
  return bytes;
}

std::optional<SparseBytes> compress_bytes(const ByteTensor& tensor) {
  SparseBytes compressed;
  const auto is_left = [](int8_t value) { return value != 0; };
  if (!drop_zeros(std::span(tensor.values), is_left, compressed.bits, compressed.values))
    return std::nullopt;
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
  if (const auto bytes = read_bytes(name)) {
    FloatTensor result{bytes->shape, {bytes->values.begin(), bytes->values.end()}};
    const size_t slice = slice_size(bytes->shape);
    for (size_t n = 0; n < result.values.size(); ++n) result.values[n] *= bytes->scales[n / slice];
    return result;
  }
  const TensorView& tensor = file_.tensor(name);
  if (tensor.type == ElementType::kFloat16) return dense_floats(tensor);
  check(tensor.type == ElementType::kFloat32, "{}: {} is {}; expected F32, F16 or I8", source(),
        name, type_name(tensor.type));
  return {tensor.shape, copied<float>(tensor)};
}

std::optional<ByteTensor> CompressedReader::read_bytes(const std::string& name) const {
  const bool sparse = shapes_.contains(name);
  const std::string stored = sparse ? name + ".values" : name;
  if (!file_.contains(stored) || file_.tensor(stored).type != ElementType::kInt8)
    return std::nullopt;
  std::vector<int8_t> values = copied<int8_t>(file_.tensor(stored));
  if (!sparse) {
    const std::vector<int64_t>& shape = file_.tensor(name).shape;
    return ByteTensor{shape, std::move(values), scales_of(file_.tensors(), name, shape, source())};
  }
  const SparseTensor left = *read_sparse(name);
  ByteTensor result{left.shape, std::vector<int8_t>(left.dense().values.size()),
                    scales_of(file_.tensors(), name, left.shape, source())};
  for (size_t n = 0; n < values.size(); ++n) result.values[left.places[n]] = values[n];
  return result;
}

std::optional<SparseTensor> CompressedReader::read_sparse(const std::string& name) const {
  const auto compressed = shapes_.find(name);
  if (compressed == shapes_.end()) return std::nullopt;
  return sparse_tensor(file_.tensors(), name, compressed->second, source());
}

}  // namespace remcaps
