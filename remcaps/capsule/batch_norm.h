// Batch norm whose batch may be divided over processes.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "remcaps/torch/process_group.h"

namespace remcaps {

/// norm.forward(maps), for maps [B, C, H, W]. In training and while a DividedBatch exists, mean and
/// variance are those of the batches of all processes together.
torch::Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& maps);

/// While it exists, each process of the group trains on its share of a batch. Null: on a batch of its
/// own. The backward pass of a forward pass under it is a collective operation too.
class DividedBatch {
 public:
  explicit DividedBatch(ProcessGroup* group);
  ~DividedBatch();
  DividedBatch(const DividedBatch&) = delete;
  DividedBatch& operator=(const DividedBatch&) = delete;
};

}  // namespace remcaps
