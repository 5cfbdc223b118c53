// What holds for every layer that packs its weight (PackedWeight).
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

namespace remcaps::testing {

/// `layer` has a weight that it packs, `packed()` is what it then keeps; the weight is another one
/// afterwards.
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
}

}  // namespace remcaps::testing
