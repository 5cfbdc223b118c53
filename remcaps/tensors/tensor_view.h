// A tensor as plain bytes: element type, shape and where the bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace remcaps {

/// The element types that safetensors files and libtorch share.
enum class ElementType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
};

/// Bytes of one element.
size_t element_size(ElementType type);

/// The name that safetensors gives the type: "F32".
std::string_view type_name(ElementType type);

/// The reverse; nothing for a name that is not known.
std::optional<ElementType> parse_type(std::string_view name);

/// A tensor in memory that somebody else owns, row-major. The first byte need not be aligned.
struct TensorView {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

using TensorViews = std::map<std::string, TensorView>;

}  // namespace remcaps
