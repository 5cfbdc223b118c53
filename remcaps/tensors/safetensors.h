// Safetensors files on a disk.
#pragma once

#include <filesystem>
#include <memory>
#include <ostream>

#include "remcaps/tensors/safetensors_bytes.h"

namespace remcaps {

/// A safetensors file, memory-mapped: the bytes of a tensor are read from disk when they are used.
class SafetensorsFile : public SafetensorsBytes {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }

  /// Whoever holds this keeps the mapped bytes, and with them the views, alive. The mapping is
  /// private: writing to it does not change the file.
  std::shared_ptr<const void> mapping() const { return mapping_; }

 private:
  template <typename Bytes>
  SafetensorsFile(const std::filesystem::path& path, const std::shared_ptr<Bytes>& mapping);

  std::filesystem::path path_;
  std::shared_ptr<const void> mapping_;
};

/// Writes the bytes of a file.
void write_safetensors(std::ostream& out, const TensorViews& tensors,
                       const Metadata& metadata = {});

/// Writes atomically: afterwards the file is whole, or what it was before.
void write_safetensors(const std::filesystem::path& path, const TensorViews& tensors,
                       const Metadata& metadata = {});

}  // namespace remcaps
