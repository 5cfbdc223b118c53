// What every capsule network returns. REM sees nothing else of a network but its named parameters.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

using torch::Tensor;

/// The pixels of a network's input that each place of a map sees. Along one axis, place n of the
/// map sees `size` pixels around the centre `first + n * step`; pixels are counted from 0, at their
/// middle. The zeros of a padding count as pixels outside the image.
struct ReceptiveField {
  struct Axis {
    double first = 0;
    int64_t step = 1, size = 1;

    /// The field of a map that a window slides over this one makes.
    Axis under(int64_t kernel, int64_t stride, int64_t padding) const {
      const double shift = static_cast<double>(kernel - 1) / 2 - static_cast<double>(padding);
      return {first + shift * static_cast<double>(step), step * stride, size + (kernel - 1) * step};
    }
  };
  Axis y, x;
};

/// The positions of a block of child capsules: `types` capsules at each place of a height x width
/// map. Capsule (type o, row y, column x) has the index
///   offset + o * stride_type + y * stride_y + x * stride_x
struct CapsuleGrid {
  int64_t offset = 0;
  int64_t types = 0, height = 0, width = 0;
  int64_t stride_type = 0, stride_y = 0, stride_x = 0;
  /// What the capsules of a place see. Unset: not known.
  std::optional<ReceptiveField> field = {};
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
  std::string layer;  ///< its module name, e.g. "class"

  /// The couplings c_ij of the last routing iteration, quantized if asked for.
  ///   fully connected layer  [B, I, J]
  ///   convolutional layer    [B, P, I_window, J_types] for P output positions
  Tensor coupling;

  /// ||u_i|| of the children, [B, I].
  Tensor child_activations;

  /// The children's poses u_i, [B, I, D]; part of the gradient's graph if there is one.
  Tensor children;

  /// If asked for: what each child contributes to the evidence for each parent, of the shape of
  /// `coupling`, and what the bias contributes, [B, J] or [B, P, J] (see RoutingResult).
  Tensor contribution, bias_contribution;

  /// Convolutional layers only: the index of the child at each place of each window, int64
  /// [P, I_window].
  Tensor windows;

  /// The maps on which the children lie; empty if they have no position.
  std::vector<CapsuleGrid> grids;

  /// How many couplings were outside [0, 1] and were clamped before quantization (a prior can push
  /// them there).
  int64_t clamped = 0;

  bool convolutional() const { return windows.defined(); }
};

struct ForwardOptions {
  /// Fill Forward::routings. Training does not, and so does not pay for it.
  bool trace = false;
  /// With `trace`: also fill in RoutingTrace::contribution. It costs one more routing iteration.
  bool contributions = false;
  /// One per routing layer, in order, or none at all. A layer with an empty entry is not quantized.
  /// Quantizers round the couplings of the last routing iteration, before the weighted sum.
  std::vector<std::optional<Quantizer>> quantizers;
  /// The classes whose poses the decoder gets, int64 [B]: in training the true ones. Undefined: the
  /// predicted classes.
  Tensor labels;
  /// Run the decoder, if the network has one.
  bool reconstruct = false;
};

struct Forward {
  Tensor poses;           ///< class capsules' poses v_j, [B, J, D]
  Tensor activations;     ///< ||v_j||, [B, J]
  Tensor reconstruction;  ///< the decoder's normalised images, [B, C, H, W]; undefined without one
  std::vector<RoutingTrace> routings;  ///< if asked for: one per routing layer, in order
};

}  // namespace remcaps
