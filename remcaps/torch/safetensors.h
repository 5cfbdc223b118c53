// The tensors of safetensors files as libtorch's.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>

#include "remcaps/tensors/safetensors.h"

namespace remcaps {

using TensorMap = std::map<std::string, torch::Tensor>;

/// A view of a contiguous tensor's memory on the CPU. Error, which begins with `name`: libtorch's
/// type is not one of ElementType's.
TensorView view_of(const torch::Tensor& tensor, const std::string& name);

/// A copy of the bytes as a tensor on the CPU.
torch::Tensor tensor_of(const TensorView& view);

/// A safetensors file that gives libtorch's tensors, on the CPU.
class TensorFile : public SafetensorsFile {
 public:
  using SafetensorsFile::SafetensorsFile;

  /// A copy of one tensor.
  torch::Tensor load(const std::string& name) const { return tensor_of(tensor(name)); }
  /// One tensor without a copy, if its bytes are aligned. It must not be written to. It keeps the
  /// file mapped for as long as it lives.
  torch::Tensor view(const std::string& name) const;
  TensorMap load_all() const;
};

/// The bytes of a safetensors file. Tensors may be on any device.
std::string safetensors_bytes(const TensorMap& tensors, const Metadata& metadata = {});

/// Writes atomically: afterwards the file is whole, or what it was before. Tensors may be on any
/// device.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

}  // namespace remcaps
