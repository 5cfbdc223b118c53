// Efficient-CapsNet's backbone: convolutions with a norm after each, then a depthwise convolution
// whose output is read as capsules. Three networks use it.
#pragma once

#include <torch/nn/modules/container/any.h>

#include "remcaps/models/stacked_capsnet.h"

namespace remcaps {

struct EffBackboneOptions {
  enum class Activation {
    kRelu,
    kLeakyRelu,  ///< slope 0.3, Keras' default
  };
  enum class Norm { kBatch, kInstance, kNone };
  std::vector<int64_t> channels = {32, 64, 64, 128};
  std::vector<int64_t> kernels = {5, 3, 3, 3};
  std::vector<int64_t> strides = {1, 1, 1, 2};
  Activation activation = Activation::kRelu;
  Norm norm = Norm::kBatch;    ///< after the activation
  double norm_epsilon = 1e-3;  ///< Keras' default
};
/// Binds conv_channels, conv_kernels, conv_strides, activation, norm and norm_epsilon.
void bind(ConfigSection& section, EffBackboneOptions& options);

/// A network with this backbone. Its layers are conv1, norm1, conv2, norm2, ..., primary.
class EffBackboneCapsNet : public StackedCapsNet {
 protected:
  EffBackboneCapsNet(const std::string& name, const ModelContext& context,
                     const EffBackboneOptions& backbone);

  /// Adds `primary`, the depthwise layer that makes the primary capsules. Kernel 0: as large as the
  /// map, so that each capsule sees the whole image.
  PrimaryCaps add_depthwise(int64_t kernel, int64_t stride, int64_t dim, const Squash& squash);

  /// Backbone and primary capsules, [B, I, D].
  Tensor children(const Tensor& images, RoutingRecorder& recorder) override;
  std::string describe_children(NetworkGraph& graph) const override;

  int64_t primary_types() const { return primary_->options.types(); }
  int64_t primary_count() { return primary_types() * feature_map().height * feature_map().width; }

 private:
  struct Layer {
    Convolution conv{nullptr};
    torch::nn::AnyModule norm;  // empty if there is none
  };
  torch::nn::AnyModule add_norm(const std::string& layer);

  std::vector<Layer> layers_;
  bool leaky_;
  EffBackboneOptions::Norm norm_;
  double norm_epsilon_;
  PrimaryCaps primary_{nullptr};
};

}  // namespace remcaps
