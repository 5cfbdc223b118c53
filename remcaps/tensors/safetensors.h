// The safetensors format: an 8-byte little-endian header length, a JSON header, raw tensor bytes.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remcaps/tensors/tensor_view.h"

namespace remcaps {

using Metadata = std::map<std::string, std::string>;

/// A safetensors file, memory-mapped: the bytes of a tensor are read from disk when they are used.
class SafetensorsFile {
 public:
  /// Checks the whole header. Error names the file and what is wrong: truncated, a key given twice,
  /// overlapping or out-of-range offsets, unknown types, sizes that do not match shapes.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return tensors_.contains(name); }

  /// All tensors by name.
  const TensorViews& tensors() const { return tensors_; }
  /// One tensor. Error suggests the nearest name if there is no such tensor.
  const TensorView& tensor(const std::string& name) const;

  /// Whoever holds this keeps the mapped bytes, and with them the views, alive. The mapping is
  /// private: writing to it does not change the file.
  std::shared_ptr<const void> mapping() const { return mapping_; }

 private:
  void read_header(const char* begin, const char* end, std::span<const std::byte> data);
  void check_tiles(std::span<const std::byte> data) const;

  std::filesystem::path path_;
  std::shared_ptr<const void> mapping_;
  Metadata metadata_;
  TensorViews tensors_;
};

/// Writes atomically: afterwards the file is whole, or what it was before.
void write_safetensors(const std::filesystem::path& path, const TensorViews& tensors,
                       const Metadata& metadata = {});

}  // namespace remcaps
