// Routing by scaled distance agreement (gamma-CapsNet).
#pragma once

#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

/// Options of scaled-distance routing. Its published gradient is stricter than that of dynamic
/// routing: all iterations but the last are constants, for the bias too.
struct ScaledDistanceRouting {
  /// Over what the mean distance d_o is taken.
  enum class Mean {
    kBatch,   ///< published: one number per batch, so that the images of a batch affect each other
    kSample,  ///< one number per image, so that they do not
  };
  int64_t iterations = 3;
  RoutingGradient gradient = RoutingGradient::kLast;
  BiasUse bias = BiasUse::kEvery;
  Mean mean = Mean::kBatch;
  Squash squash = {};
  KernelPath kernels = KernelPath::kFused;

  operator RoutingPtr() const;
};

/// Votes are shortened to their child's length. In each iteration the logits are replaced by
/// t · ||v_j - û_ij||, with t such that a parent at half the mean distance gets a coupling of 0.9.
/// A matrix W_ij that is pruned completely votes 0 (the published code divides 0 by 0).
/// `bias` [J, Dout] may be undefined.
RoutingResult scaled_distance_routing(const Tensor& children, const Tensor& weight,
                                      const Tensor& bias, const ScaledDistanceRouting& options,
                                      const RoutingRequest& request = {});

}  // namespace remcaps
