// What holds for every layer that packs its weight (PackedWeight).
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

namespace remcaps::testing {

/// Expects `layer` to keep a packed weight until its weight changes or it returns to training mode,
/// and a frozen one also in training mode.
/// `packed()` returns that packed weight, or null. The layer's weight is changed.
template <typename Layer, typename Packed>
void expect_packed_until_changed(Layer& layer, const Packed& packed) {
  const torch::NoGradGuard no_grad;
  const auto pack = [&] {
    layer->pack();
    ASSERT_NE(packed(), nullptr);
  };
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->weight.mul_(2);
  EXPECT_EQ(packed(), nullptr);
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->train();
  EXPECT_EQ(packed(), nullptr);
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->weight.set_data(layer->weight.clone());
  EXPECT_EQ(packed(), nullptr);
  layer->weight.set_requires_grad(false);
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->train();
  EXPECT_NE(packed(), nullptr);
}

}  // namespace remcaps::testing
