// What a pruning strategy does to the weights in one training step, as data.
#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>

namespace remcaps {

/// An optimiser that updates all parameters in one pass applies this rule in the same pass.
/// Parameters are identified by name.
struct UpdateRule {
  /// If given, it is called first, when the parameters have their gradients. It can be recorded in a
  /// CUDA graph: it does not wait for the device and does the same in every step of an epoch.
  std::function<void()> before = {};
  double lambda = 0;             ///< before Adam: p <- p - lambda p max(0, 1 - |dL/dp|)
  std::set<std::string> shrunk;  ///< the parameters to which this applies
  std::map<std::string, torch::Tensor> dead;  ///< bool masks; after Adam these weights become zero
};

}  // namespace remcaps
