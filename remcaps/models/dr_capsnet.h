// DR-CapsNet (Sabour et al., as REM's authors train it), and gamma-CapsNet: the same backbone with
// a hidden capsule layer and another routing algorithm.
#pragma once

#include "remcaps/models/stacked_capsnet.h"

namespace remcaps {

/// The defaults are DR-CapsNet's.
struct DrCapsNetOptions {
  enum class Padding {
    kValid,
    kSame,  ///< zeros around the input of all convolutions (Sabour et al. on CIFAR-10)
  };
  std::string name = "dr-capsnet";  ///< the network's name in messages
  int64_t convs = 1;                ///< equal convolutions before the primary capsules
  int64_t conv_channels = 256;
  int64_t conv_kernel = 9, conv_stride = 1;
  int64_t primary_types = 32, primary_dim = 8;
  int64_t primary_kernel = 9, primary_stride = 2;
  Padding padding = Padding::kValid;
  std::vector<int64_t> hidden = {};  ///< capsules of each hidden layer, first to last
  int64_t hidden_dim = 8;
  int64_t class_dim = 16;
  RoutingPtr routing = DynamicRouting{};
  DecoderOptions decoder = {};

  /// gamma-CapsNet.
  static DrCapsNetOptions gamma();
};
void bind(ConfigSection& section, DrCapsNetOptions& options, const ModelContext& context);

/// conv1 (ReLU) [, conv2, ...] -> primary -> [hidden ->] class.
/// Parameters:
///   conv1.{weight,bias}         conv2, ... if there are several
///   primary.conv.{weight,bias}
///   hidden.{weight,bias}        hidden1, hidden2, ... if there are several
///   class.{weight,bias}
class DrCapsNet : public StackedCapsNet {
 public:
  DrCapsNet(const ModelContext& context, const DrCapsNetOptions& options);

 protected:
  Tensor children(const Tensor& images, RoutingRecorder& recorder) override;
  std::string describe_children(NetworkGraph& graph) const override;

 private:
  std::vector<Convolution> convs_;
  PrimaryCaps primary_{nullptr};
};

}  // namespace remcaps
