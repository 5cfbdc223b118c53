#include "remcaps/tensors/packed.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"

namespace remcaps {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr const char* kShapes = "packed";  // metadata: {name: shape} of every tensor with a bitmap
constexpr int64_t kBits = 8;

Tensor bit_values() {
  return torch::pow(2, torch::arange(kBits)).to(torch::kUInt8);  // 1, 2, 4, ..., 128
}

int64_t bitmap_bytes(int64_t places) {
  return (places + kBits - 1) / kBits;
}

Tensor to_bitmap(const Tensor& marked) {  // bool [n] -> uint8 [ceil(n / 8)]
  Tensor padded = torch::zeros({bitmap_bytes(marked.numel()) * kBits}, torch::kUInt8);
  padded.slice(0, 0, marked.numel()).copy_(marked);
  return (padded.view({-1, kBits}) * bit_values()).sum(1, /*keepdim=*/false, torch::kUInt8);
}

Tensor from_bitmap(const Tensor& bytes) {  // uint8 [n] -> bool [8 n]
  return bytes.unsqueeze(1).bitwise_and(bit_values()).ne(0).flatten();
}

// Takes the parts of one tensor out of `tensors` and puts them together.
Tensor unpack(TensorMap& tensors, const std::string& name, const std::vector<int64_t>& shape,
              const std::string& source) {
  const auto take = [&](const std::string& part) {
    const auto found = tensors.extract(part);
    check(!found.empty(), "{}: its packed tensor {} has no {}", source, name, part);
    return found.mapped();
  };
  const Tensor bits = take(name + ".bits"), values = take(name + ".values");
  int64_t places = 1;
  for (const int64_t size : shape) {
    check(size > 0 && size <= (int64_t{1} << 40) / places, "{}: {} cannot have the shape [{}]",
          source, name, fmt::join(shape, ", "));
    places *= size;
  }
  check(bits.scalar_type() == torch::kUInt8 && bits.dim() == 1 &&
            bits.numel() == bitmap_bytes(places),
        "{}: the bitmap of {} has {} bytes; expected {}", source, name, bits.numel(),
        bitmap_bytes(places));
  const Tensor marked = from_bitmap(bits);
  const int64_t expected = marked.slice(0, 0, places).sum().item<int64_t>();
  check(values.is_floating_point() && values.dim() == 1 && values.numel() == expected &&
            !marked.slice(0, places).any().item<bool>(),
        "{}: {} has {} values; its bitmap marks {}", source, name, values.numel(),
        marked.sum().item<int64_t>());
  return torch::zeros({places})
      .masked_scatter_(marked.slice(0, 0, places), values.to(torch::kFloat32))
      .view(shape);
}

}  // namespace

PackedTensors pack_tensors(const TensorMap& tensors) {
  PackedTensors packed;
  json shapes = json::object();
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) {
      packed.tensors[name] = tensor.cpu();
      continue;
    }
    const Tensor half = tensor.detach().cpu().to(torch::kFloat16).contiguous();
    check(torch::isfinite(half).all().item<bool>(),
          "{}: a value of {:g} does not fit half precision", name,
          tensor.abs().max().item<double>());
    const Tensor flat = half.flatten(), marked = flat.ne(0);
    const int64_t zeros = flat.numel() - marked.sum().item<int64_t>();
    if (2 * zeros <= bitmap_bytes(flat.numel())) {  // the bitmap would cost more than it saves
      packed.tensors[name] = half;
      continue;
    }
    packed.tensors[name + ".bits"] = to_bitmap(marked);
    packed.tensors[name + ".values"] = flat.masked_select(marked);
    shapes[name] = half.sizes().vec();
  }
  packed.metadata[kShapes] = json_text(shapes);
  return packed;
}

TensorMap unpack_tensors(const PackedTensors& packed, const std::string& source) {
  TensorMap tensors = packed.tensors;
  const auto found = packed.metadata.find(kShapes);
  if (found == packed.metadata.end()) return tensors;
  std::map<std::string, std::vector<int64_t>> shapes;
  try {
    shapes = json::parse(found->second).get<decltype(shapes)>();
  } catch (const json::exception&) {
    fail("{}: its metadata \"{}\" does not give shapes by name", source, kShapes);
  }
  for (const auto& [name, shape] : shapes) tensors[name] = unpack(tensors, name, shape, source);
  for (auto& [name, tensor] : tensors)
    if (tensor.scalar_type() == torch::kFloat16) tensor = tensor.to(torch::kFloat32);
  return tensors;
}

TensorMap load_unpacked(const SafetensorsFile& file) {
  return unpack_tensors({file.load_all(), file.metadata()}, file.path().string());
}

}  // namespace remcaps
