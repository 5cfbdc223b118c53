// Batch norm whose batch may be divided over processes.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

namespace remcaps {

/// norm.forward(maps), for maps [B, C, H, W]. In training and while a DividedBatch exists, mean and
/// variance are those of the batches of all processes together.
torch::Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& maps);

}  // namespace remcaps
