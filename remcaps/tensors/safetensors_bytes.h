// The safetensors format: an 8-byte little-endian header length, a JSON header, raw tensor bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "remcaps/tensors/tensor_view.h"

namespace remcaps {

using Metadata = std::map<std::string, std::string>;

/// The key of a header that holds the metadata.
constexpr const char* kSafetensorsMetadata = "__metadata__";

/// A safetensors file in memory. The bytes must outlive it.
class SafetensorsBytes {
 public:
  /// Checks the whole header. Error names `source` and what is wrong: truncated, a key given twice,
  /// overlapping or out-of-range offsets, unknown types, sizes that do not match shapes.
  SafetensorsBytes(std::span<const std::byte> bytes, std::string source);

  /// The file's name, for messages.
  const std::string& source() const { return source_; }
  const Metadata& metadata() const { return metadata_; }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return tensors_.contains(name); }

  /// All tensors by name.
  const TensorViews& tensors() const { return tensors_; }
  /// One tensor. Error suggests the nearest name if there is no such tensor.
  const TensorView& tensor(const std::string& name) const;

 private:
  void read_header(const char* begin, const char* end, std::span<const std::byte> data);
  void check_tiles(std::span<const std::byte> data) const;

  std::string source_;
  Metadata metadata_;
  TensorViews tensors_;
};

}  // namespace remcaps
