#include "remcaps/torch/compressed.h"

#include <cstring>

#include "remcaps/base/error.h"
#include "remcaps/tensors/compressed.h"

namespace remcaps {
namespace {

using torch::Tensor;

// A tensor of its own memory that holds a copy of `values`.
template <typename T>
Tensor copied(const std::vector<T>& values, torch::IntArrayRef shape, torch::ScalarType type) {
  Tensor tensor = torch::empty(shape, type);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

TensorMap decompressed(const TensorViews& views, const Metadata& metadata,
                       const std::string& source) {
  const DecompressedTensors raw = decompress(views, metadata, source);
  TensorMap tensors;
  for (const auto& [name, tensor] : raw.floats)
    tensors.emplace(name, copied(tensor.values, tensor.shape, torch::kFloat32));
  for (const auto& [name, view] : raw.others) tensors.emplace(name, tensor_of(view));
  return tensors;
}

}  // namespace

CompressedTensors compress_tensors(const TensorMap& tensors) {
  CompressedTensors compressed;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) {
      compressed.tensors[name] = tensor.detach().cpu().contiguous();
      continue;
    }
    const Tensor half = tensor.detach().cpu().to(torch::kFloat16).contiguous();
    check(torch::isfinite(half).all().item<bool>(),
          "{}: a value of {:g} does not fit half precision", name,
          tensor.abs().max().item<double>());
    const auto sparse = compress_halves(
        {static_cast<const uint16_t*>(half.data_ptr()), static_cast<size_t>(half.numel())});
    if (!sparse) {
      compressed.tensors[name] = half;
      continue;
    }
    const auto bytes = static_cast<int64_t>(sparse->bits.size());
    const auto kept = static_cast<int64_t>(sparse->values.size());
    compressed.tensors[name + ".bits"] = copied(sparse->bits, {bytes}, torch::kUInt8);
    compressed.tensors[name + ".values"] = copied(sparse->values, {kept}, torch::kFloat16);
    shapes[name] = half.sizes().vec();
  }
  compressed.metadata = compressed_metadata(shapes);
  return compressed;
}

TensorMap decompress_tensors(const CompressedTensors& compressed, const std::string& source) {
  TensorViews views;
  for (const auto& [name, tensor] : compressed.tensors) views[name] = view_of(tensor, name);
  return decompressed(views, compressed.metadata, source);
}

TensorMap load_decompressed(const SafetensorsFile& file) {
  return decompressed(file.tensors(), file.metadata(), file.path().string());
}

}  // namespace remcaps
