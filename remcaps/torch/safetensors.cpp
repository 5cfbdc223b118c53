#include "remcaps/torch/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

// In the order of ElementType.
constexpr std::array<torch::ScalarType, 10> kScalarTypes = {
    torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16, torch::kInt64,
    torch::kInt32,   torch::kInt16,   torch::kInt8,    torch::kUInt8,    torch::kBool};

torch::TensorOptions options_of(const TensorView& view) {
  return torch::dtype(kScalarTypes[static_cast<size_t>(view.type)]);
}

}  // namespace

TensorView view_of(const torch::Tensor& tensor, const std::string& name) {
  const auto* type = std::find(kScalarTypes.begin(), kScalarTypes.end(), tensor.scalar_type());
  check(type != kScalarTypes.end(), "{} has a type safetensors does not know", name);
  return {static_cast<ElementType>(type - kScalarTypes.begin()),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}};
}

torch::Tensor tensor_of(const TensorView& view) {
  torch::Tensor tensor = torch::empty(view.shape, options_of(view));
  if (!view.bytes.empty()) std::memcpy(tensor.data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

torch::Tensor TensorFile::view(const std::string& name) const {
  const TensorView& found = tensor(name);
  // libtorch wants aligned elements; the format does not promise them.
  if (reinterpret_cast<uintptr_t>(found.bytes.data()) % element_size(found.type) != 0)
    return load(name);
  return torch::from_blob(
      const_cast<std::byte*>(found.bytes.data()), found.shape, [keep = mapping()](void*) {},
      options_of(found));
}

TensorMap TensorFile::load_all() const {
  TensorMap loaded;
  for (const auto& [name, tensor] : tensors()) loaded.emplace(name, tensor_of(tensor));
  return loaded;
}

namespace {

/// The tensors on the CPU, and views of them.
struct OnCpu {
  TensorMap tensors;
  TensorViews views;

  /// `source` begins the errors.
  OnCpu(const TensorMap& anywhere, const std::string& source) {
    for (const auto& [name, tensor] : anywhere) {
      const torch::Tensor& copy = tensors[name] = tensor.detach().to(torch::kCPU).contiguous();
      views[name] = view_of(copy, fmt::format("{}tensor {}", source, name));
    }
  }
};

}  // namespace

std::string safetensors_bytes(const TensorMap& tensors, const Metadata& metadata) {
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);  // otherwise it loses bytes if memory does not suffice
  write_safetensors(out, OnCpu(tensors, "").views, metadata);
  return std::move(out).str();
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata) {
  write_safetensors(path, OnCpu(tensors, path.string() + ": ").views, metadata);
}

}  // namespace remcaps
