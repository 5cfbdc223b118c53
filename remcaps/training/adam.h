// Adam (Kingma & Ba) for named parameters. Its state can be saved and restored exactly.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "remcaps/ops/kernel_path.h"
#include "remcaps/ops/update.h"
#include "remcaps/pruning/update_rule.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  KernelPath kernels = KernelPath::kReference;
};

/// PyTorch's formula:
///   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
///   p <- p - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
class Adam {
 public:
  using NamedParameters = std::vector<std::pair<std::string, torch::Tensor>>;

  /// Parameters that need no gradient (a frozen backbone) are left out.
  Adam(const NamedParameters& parameters, AdamOptions options);

  /// One update. Parameters without a gradient do not change.
  void step(double lr);
  /// The same with the rule of a pruning strategy, in one pass over the parameters. Only if
  /// one_pass().
  void step(double lr, const UpdateRule& rule);
  /// For a step that is recorded: its numbers [3] (see numbers()) are on the device. The step is
  /// not counted; call count_step() for every replay.
  void step(const torch::Tensor& numbers, const UpdateRule& rule);
  void count_step() { ++steps_; }
  /// The numbers of the steps first, first + 1, ..., as [count, 3] on the parameters' device.
  torch::Tensor numbers(double lr, double lambda, int64_t first, int64_t count) const;
  /// Whether the fused kernel is used: if requested, and all parameters are float32 and contiguous.
  bool one_pass() const { return one_pass_; }
  void zero_grad();

  int64_t steps() const { return steps_; }
  const NamedParameters& parameters() const { return parameters_; }

  /// The moments: "m.<parameter>" and "v.<parameter>".
  TensorMap state() const;
  /// `state` must have every moment, in the shape of its parameter.
  void load_state(const TensorMap& state, int64_t steps);

 private:
  void plain_step(double lr);
  void fused_step(double lr, const UpdateRule& rule);
  std::vector<UpdatedParameter> with_gradients(const UpdateRule& rule) const;
  UpdateConstants constants() const {
    return {.beta1 = options_.beta1, .beta2 = options_.beta2, .eps = options_.eps};
  }

  AdamOptions options_;
  bool one_pass_ = false;
  NamedParameters parameters_;
  std::vector<torch::Tensor> first_, second_;
  int64_t steps_ = 0;
};

}  // namespace remcaps
