// DeepCaps (Rajasegaran et al.): four cells of convolutional capsules with skip connections. The
// last cell routes through a 3-D convolution.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include "remcaps/capsule/conv_caps.h"
#include "remcaps/models/stacked_capsnet.h"

namespace remcaps {

/// The defaults are those of the port that REM's authors train.
struct DeepCapsOptions {
  /// Whether the capsules of the third cell come before or after those of the fourth.
  enum class ThirdCell { kFirst, kLast };
  enum class Init {
    kTorch,
    kKeras,  ///< glorot, and he_normal for the 3-D convolution
  };
  bool relu = false;            ///< after conv1 (original: yes)
  bool squash_conv1 = true;     ///< squash conv1's channels as capsules of 1 (original: no)
  double norm_momentum = 0.99;  ///< share of the new batch in bn1's running mean (original: 0.01)
  double norm_epsilon = 1e-8;   ///< of bn1 (original: 1e-3)
  bool conv_bias = true;        ///< of the capsule convolutions (original: no)
  int64_t conv_channels = 128;
  int64_t types = 32;
  int64_t class_dim = 32;
  ThirdCell third_cell = ThirdCell::kFirst;  ///< (original: last)
  Init init = Init::kTorch;                  ///< (original: Keras)
  int64_t conv3d_depth = 3;  ///< components of a child that the 3-D kernel sees (original: all 8)
  bool conv3d_conv_bias = true;  ///< a bias per vote (original: no)
  bool conv3d_bias = false;      ///< a bias per parent capsule, in every iteration (original: yes)
  Conv3dRouting conv3d = {};
  RoutingPtr routing =
      DynamicRouting{.bias = BiasUse::kLast, .squash = {Squash::Form::kNorm, 1e-8}};
  DecoderOptions decoder = {};

  /// The network of the DeepCaps authors.
  static DeepCapsOptions original();
};
/// The key `variant` chooses the defaults of the other keys: "rem" or "original".
void bind(ConfigSection& section, DeepCapsOptions& options, const ModelContext& context);

/// conv1, bn1 -> cells M = 0 to 3: x = capsM0(x), stride 2; x = capsM3(capsM2(x)) + capsM1(x).
/// caps31 is the routed layer. The capsules of cells 2 and 3, in order (y, x, type), are the
/// children of `class`.
/// Parameters:
///   conv1.{weight,bias}, bn1.{weight,bias}
///   capsMN.conv.{weight,bias}
///   class.{weight,bias}
class DeepCaps : public StackedCapsNet {
 public:
  DeepCaps(const ModelContext& context, const DeepCapsOptions& options);

 protected:
  Tensor children(const Tensor& images, RoutingRecorder& recorder) override;
  std::string describe_children(NetworkGraph& graph) const override;

 private:
  /// Three capsule convolutions and the skip connection, which is `routed` in the last cell and
  /// `skip` in the others.
  struct Cell {
    Conv2dCaps down{nullptr}, skip{nullptr}, second{nullptr}, third{nullptr};
    Conv3dCaps routed{nullptr};
  };
  Cell add_cell(int64_t index, int64_t dim);
  CapsuleGrid grid_of(const FeatureMap& map, int64_t offset) const;
  /// [B, types·8, h, w] -> [B, h·w·types, 8], float32. Only a view if the map is channels-last and
  /// float32.
  Tensor capsules_of(const Tensor& map) const;
  void initialise_as_keras();

  DeepCapsOptions options_;
  Convolution conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<Cell> cells_;
  CapsuleGrid routed_grid_;  // of the children of the last cell's routed layer
};

}  // namespace remcaps
