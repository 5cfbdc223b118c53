// How much of a network is zero: parameters, filters, matrices W_ij and whole capsules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remcaps/models/model.h"

namespace remcaps {

struct Sparsity {
  struct Layer {
    std::string name;
    int64_t parameters = 0, nonzero = 0;
    bool prunable = false;
  };
  std::vector<Layer> layers;
  int64_t parameters = 0, nonzero = 0;  ///< of all trainable parameters
  /// Of the prunable layers, with biases and frozen convolutions.
  int64_t prunable_parameters = 0, prunable_nonzero = 0;

  /// Share of zeros among all parameters of the prunable layers (the published definition).
  double published() const;
  /// Share of zeros among all parameters.
  double overall() const;
};
Sparsity measure_sparsity(const CapsNet& model);

/// Parts of the network in which all weights are zero: they need not be computed any more.
struct DeadStructures {
  int64_t filters = 0, dead_filters = 0;    ///< output channels of convolutions
  int64_t blocks = 0, dead_blocks = 0;      ///< matrices W_ij of capsule layers
  int64_t capsules = 0, dead_capsules = 0;  ///< children i whose W_ij are zero for every parent j
};
/// Counts in the prunable layers. The weights of capsule layers are [I, J, Dout, Din].
DeadStructures count_dead_structures(const CapsNet& model);

}  // namespace remcaps
