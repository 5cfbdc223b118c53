#include "remcaps/ops/quantize.h"

#include "remcaps/base/parallel.h"
#include "remcaps/parse_tree/keys.h"

namespace remcaps {

using torch::Tensor;

namespace {

// The K - 1 edges between two levels, in the type and on the device of the couplings.
Tensor inner_edges(const Quantizer& quantizer, const Tensor& like) {
  if (like.scalar_type() == torch::kFloat)
    return torch::tensor(quantizer.inner_edges()).to(like.device());
  const std::vector<double>& edges = quantizer.edges();
  const std::vector<double> inner(edges.begin() + 1, edges.end() - 1);
  return torch::tensor(inner, torch::kDouble).to(like.device());
}

Tensor encode_keys_cpu(const Tensor& couplings, const Quantizer& quantizer) {
  const Tensor rows = couplings.contiguous();
  const int64_t count = rows.size(1);
  const int64_t length = key_length(count, quantizer.levels());
  Tensor keys = torch::empty({rows.size(0), length}, torch::kUInt8);
  const float* from = rows.data_ptr<float>();
  uint8_t* to = keys.data_ptr<uint8_t>();
  parallel_for(0, rows.size(0), /*grain=*/16, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      encode_key({from + row * count, static_cast<size_t>(count)}, quantizer,
                 {to + row * length, static_cast<size_t>(length)});
  });
  return keys;
}

}  // namespace

Tensor level_indices(const Tensor& coupling, const Quantizer& quantizer) {
  Tensor values = coupling.detach();
  if (values.scalar_type() != torch::kDouble) values = values.to(torch::kFloat);
  return torch::bucketize(values.contiguous(), inner_edges(quantizer, values));
}

Tensor quantize(const Tensor& coupling, const Quantizer& quantizer) {
  const auto type = coupling.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const Tensor values = torch::tensor(quantizer.centres()).to(coupling.device(), type);
  return values.take(level_indices(coupling, quantizer));
}

Tensor encode_keys(const Tensor& couplings, const Quantizer& quantizer) {
  if (couplings.device().is_cpu() && couplings.scalar_type() == torch::kFloat)
    return encode_keys_cpu(couplings.detach(), quantizer);
  Tensor levels = level_indices(couplings, quantizer).to(torch::kUInt8);
  if (quantizer.levels() > kLevelsOfHalfAByte) return levels;
  if (levels.size(1) % 2 != 0) levels = torch::constant_pad_nd(levels, {0, 1});
  const Tensor pairs = levels.view({levels.size(0), -1, 2});
  return pairs.select(2, 0) + pairs.select(2, 1) * kLevelsOfHalfAByte;
}

}  // namespace remcaps
