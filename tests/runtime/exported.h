// Networks written as `remcaps export` writes them, without measuring them first.
#pragma once

#include <gtest/gtest.h>

#include "remcaps/runs/load.h"
#include "remcaps/runs/weights.h"
#include "remcaps/runtime/compact.h"
#include "remcaps/runtime/network.h"
#include "tests/models/make.h"
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

/// What an exported file holds, but for statistics that are not numbers with a fraction.
inline NetworkData read_exported(const std::filesystem::path& path, const CapsNet& model) {
  const SafetensorsFile file(path);
  NetworkData network{NetworkGraph::parse(file.metadata().at("graph"), "test"), {}};
  const CompressedReader reader(file);
  for (const auto& [name, tensor] : weights_of(model))
    if (tensor.is_floating_point()) network.tensors[name] = reader.read(name);
  return network;
}

/// Writes the network with plain float32 tensors.
inline void write_network(const std::filesystem::path& path, const NetworkData& network) {
  TensorViews tensors;
  for (const auto& [name, tensor] : network.tensors)
    tensors[name] = {ElementType::kFloat32, tensor.shape, std::as_bytes(std::span(tensor.values))};
  write_safetensors(path, tensors, {{"graph", network.graph.to_text()}});
}

/// A DR-CapsNet for images of 20 x 20, three types of capsules with four components each, and its
/// exported file.
class SmallNetwork : public ::testing::Test {
 protected:
  SmallNetwork(int64_t conv_channels, uint64_t seed) {
    torch::manual_seed(seed);
    info_.context = images(1, 20, 20, 3);
    model_ = make("dr-capsnet", info_.context,
                  fmt::format("{{conv_channels: {}, conv_kernel: 5, primary_types: 3, "
                              "primary_kernel: 5, primary_dim: 4, class_dim: 5}}",
                              conv_channels));
    model_->eval();
    info_.recipe.name = "test/small";
    info_.recipe.model = "dr-capsnet";
    info_.class_names = {"cat", "dog", "owl"};
    write_exported(file_, *model_, info_);
  }

  /// Writes the file anew, with the weights that the network has now; returns what it holds.
  NetworkData exported() const {
    write_exported(file_, *model_, info_);
    return read_exported(file_, *model_);
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "original.safetensors";
  std::shared_ptr<CapsNet> model_;
  WeightsInfo info_;
};

}  // namespace remcaps::testing
