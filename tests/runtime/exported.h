// Networks written as `remcaps export` writes them, without measuring them first.
#pragma once

#include "remcaps/runs/load.h"
#include "remcaps/runs/weights.h"
#include "remcaps/runtime/network.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {

/// Writes the network; `model` has the compressed weights afterwards.
inline void write_exported(const std::filesystem::path& path, CapsNet& model,
                           const WeightsInfo& info) {
  const CompressedTensors compressed = compress_tensors(weights_of(model));
  load_weights(model, decompress_tensors(compressed, "test"), "test");
  save_compressed_weights(path, compressed, info, inference_graph(model, info), "{}");
}

/// A network with random weights, a third of them pruned, and random statistics of its batch norms.
inline void randomise(CapsNet& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters())
    if (item.value().dim() == 4) item.value().mul_(torch::rand_like(item.value()).gt(0.33));
  for (const auto& item : model.named_buffers()) {
    if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.1);
    if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 1.5);
  }
}

inline std::vector<float> floats_of(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous();
  return {dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()};
}

}  // namespace remcaps::testing
