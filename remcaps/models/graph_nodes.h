// The layers of the built-in networks as nodes of their inference graph (runtime/graph.h).
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include "remcaps/capsule/conv_caps.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/runtime/graph.h"

namespace remcaps {

// Each function adds nodes that read `input` and returns the name of the result. `layer` is the
// module's name: its parameters are `layer`.weight and so on.

std::string add_convolution(NetworkGraph& graph, const std::string& layer,
                            const torch::nn::Conv2dImpl& convolution, const std::string& input);
/// `slope` 0 is the plain ReLU.
std::string add_relu(NetworkGraph& graph, const std::string& name, const std::string& input,
                     double slope = 0.0);
std::string add_batch_norm(NetworkGraph& graph, const std::string& layer, double epsilon,
                           const std::string& input);
/// A convolution, read as capsules and squashed. `padding` more zeros surround its input.
std::string add_primary_caps(NetworkGraph& graph, const std::string& layer,
                             const PrimaryCapsImpl& capsules, const std::string& input,
                             int64_t padding = 0);
std::string add_conv2d_caps(NetworkGraph& graph, const std::string& layer,
                            const Conv2dCapsImpl& capsules, const std::string& input);
std::string add_conv3d_caps(NetworkGraph& graph, const std::string& layer,
                            const Conv3dCapsImpl& capsules, const std::string& input);
std::string add_squash(NetworkGraph& graph, const std::string& name, int64_t types, int64_t dim,
                       double epsilon, const std::string& input);

}  // namespace remcaps
