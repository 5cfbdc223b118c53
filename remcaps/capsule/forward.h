// What every capsule network returns, and all that REM ever sees of one.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

using torch::Tensor;

/// Where a block of child capsules came from: `types` capsules at each cell of a height x width
/// map. Capsule (type o, row y, column x) has the index
///   offset + o * stride_type + y * stride_y + x * stride_x.
struct CapsuleGrid {
  int64_t offset = 0;
  int64_t types = 0, height = 0, width = 0;
  int64_t stride_type = 0, stride_y = 0, stride_x = 0;
};

/// Capsules in order (type, y, x), row by row.
inline CapsuleGrid row_major_grid(int64_t types, int64_t height, int64_t width) {
  return {0, types, height, width, height * width, width, 1};
}

/// Capsules in order (y, x, type), from `offset` on.
inline CapsuleGrid type_last_grid(int64_t offset, int64_t types, int64_t height, int64_t width) {
  return {offset, types, height, width, 1, width * types, types};
}

/// The couplings of one routing layer for a batch of images: one level of their parse trees.
struct RoutingTrace {
  std::string layer;  ///< its module name, "class"

  /// Fully connected: c_ij, [B, I, J]. Convolutional: [B, P, I_window, J_types], one row of windows
  /// per output position P. The couplings of the last routing iteration, quantized where asked for.
  Tensor coupling;

  /// ||u_i|| of the children, [B, I].
  Tensor child_activations;

  /// Convolutional only: the child index of each place of each window, int64 [P, I_window].
  Tensor windows;

  /// The maps the children lie on; empty for capsules without a place.
  std::vector<CapsuleGrid> grids;

  /// Couplings outside [0, 1] that were clamped before quantization (a prior can push them there).
  int64_t clamped = 0;

  bool convolutional() const { return windows.defined(); }
};

struct ForwardOptions {
  /// Fill Forward::routings. Training leaves it off and does not pay for it.
  bool trace = false;
  /// One per routing layer, in order; empty: no quantization. A layer whose entry is empty is left
  /// alone. Applied to the couplings of the last routing iteration before the weighted sum.
  std::vector<std::optional<Quantizer>> quantizers;
  /// True classes, int64 [B]: masks the decoder's input in training. Undefined: the predicted
  /// class.
  Tensor labels;
  /// Run the decoder where the network has one.
  bool reconstruct = false;
};

struct Forward {
  Tensor poses;           ///< class capsules' poses v_j, [B, J, D]
  Tensor activations;     ///< ||v_j||, [B, J]
  Tensor reconstruction;  ///< the decoder's image in normalised space, [B, C, H, W]; else undefined
  std::vector<RoutingTrace> routings;  ///< on request, first routing layer first
};

}  // namespace remcaps
