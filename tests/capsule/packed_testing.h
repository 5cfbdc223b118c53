// What holds for every layer that packs its weight (PackedWeight).
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

namespace remcaps::testing {

/// `layer` has a weight that it packs; it is another one afterwards.
template <typename Layer>
void expect_packed_until_changed(Layer& layer) {
  const torch::NoGradGuard no_grad;
  const auto pack = [&] {
    layer->pack();
    ASSERT_NE(layer->packed(), nullptr);
  };
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->weight.mul_(2);
  EXPECT_EQ(layer->packed(), nullptr);
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->train();
  EXPECT_EQ(layer->packed(), nullptr);
  ASSERT_NO_FATAL_FAILURE(pack());
  layer->weight.set_data(layer->weight.clone());
  EXPECT_EQ(layer->packed(), nullptr);
}

}  // namespace remcaps::testing
