// The safetensors format: an 8-byte little-endian header length, a JSON header, raw tensor bytes.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace remcaps {

using TensorMap = std::map<std::string, torch::Tensor>;
using Metadata = std::map<std::string, std::string>;

/// A safetensors file, memory-mapped: tensors are read when asked for.
class SafetensorsFile {
 public:
  /// Checks the whole header: Error names the file and what is wrong (truncated, overlapping or
  /// out-of-range offsets, unknown types, sizes that do not match shapes).
  explicit SafetensorsFile(const std::filesystem::path& path);

  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  std::vector<int64_t> shape(const std::string& name) const;
  torch::ScalarType type(const std::string& name) const;

  /// A copy of one tensor, on the CPU.
  torch::Tensor load(const std::string& name) const;
  /// A view of the mapped bytes: no copy, read-only by convention, valid as long as it is held (it
  /// keeps the mapping alive).
  torch::Tensor view(const std::string& name) const;
  TensorMap load_all() const;

 private:
  struct Mapping;
  struct Entry {
    torch::ScalarType type;
    std::vector<int64_t> shape;
    size_t begin, end;
  };
  const Entry& entry(const std::string& name) const;
  void check_tiles(size_t data_size) const;

  std::filesystem::path path_;
  std::shared_ptr<Mapping> mapping_;
  size_t data_begin_ = 0;
  Metadata metadata_;
  std::map<std::string, Entry> entries_;
};

/// Writes atomically: the file is whole or what was there before. Tensors may be on any device.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

}  // namespace remcaps
