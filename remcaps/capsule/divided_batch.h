// A batch that is divided over the processes of a run.
#pragma once

#include <torch/types.h>

#include "remcaps/torch/process_group.h"

namespace remcaps {

/// While it exists, each process of the group trains on its share of a batch of `images`. Null: on
/// a batch of its own. The backward pass of a forward pass under it is a collective operation too.
class DividedBatch {
 public:
  DividedBatch(ProcessGroup* group, int64_t images);
  ~DividedBatch();
  DividedBatch(const DividedBatch&) = delete;
  DividedBatch& operator=(const DividedBatch&) = delete;

  /// Null if the batch is not divided.
  static ProcessGroup* group();
  /// Images of the whole batch.
  static int64_t images();
};

/// The sum of a tensor over the processes, for autograd too.
torch::Tensor sum_over_processes(const torch::Tensor& part, ProcessGroup& group);

}  // namespace remcaps
