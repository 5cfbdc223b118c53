#include "remcaps/capsule/routing/window.h"

#include "tests/capsule/numeric.h"

namespace remcaps {
namespace {

using testing::expect_close;
using testing::finite_differences;
using testing::random_doubles;

TEST(ConvCapsRouting, EachPositionRoutesTheChildrenOfItsOwnWindow) {
  torch::manual_seed(1);
  const int64_t types = 2, height = 5, width = 7, kernel = 3, stride = 2;
  const Tensor children = random_doubles({2, types, height, width, 4});
  const Tensor weight = random_doubles({types * kernel * kernel, 3, 5, 4});
  const Tensor bias = random_doubles({3, 5}, 0.1);
  const RoutingResult all = conv_caps_routing(children, weight, bias, kernel, stride, {});
  const Tensor windows = window_map(types, height, width, kernel, stride);
  ASSERT_EQ(windows.sizes(), torch::IntArrayRef({2 * 3, types * 9}));
  ASSERT_EQ(all.coupling.sizes(), torch::IntArrayRef({2, 6, types * 9, 3}));
  const Tensor flat = children.view({2, types * height * width, 4});
  for (int64_t p = 0; p < 6; ++p) {
    const RoutingResult one = dynamic_routing(flat.index_select(1, windows[p]), weight, bias, {});
    expect_close(all.poses.select(1, p), one.poses, 1e-12);
    expect_close(all.coupling.select(1, p), one.coupling, 1e-12);
  }
}

TEST(ConvCapsRouting, WindowMapCountsTypesThenRowsThenColumns) {
  const Tensor windows = window_map(/*types=*/2, /*height=*/3, /*width=*/4, /*kernel=*/2, 1);
  const Tensor expected = torch::tensor({5, 6, 9, 10, 17, 18, 21, 22}, torch::kInt64);
  EXPECT_TRUE(torch::equal(windows[4], expected));  // position (1, 1)
}

TEST(ConvCapsRouting, GradientsOfBothKindsReachTheChildren) {
  torch::manual_seed(2);
  const Tensor children = random_doubles({1, 1, 3, 3, 2}).requires_grad_();
  const Tensor weight = random_doubles({4, 2, 2, 2}).requires_grad_();
  DynamicRouting options;
  options.gradient = RoutingGradient::kFull;
  const Tensor probe = random_doubles({1, 4, 2, 2});
  const auto loss = [&] {
    return (conv_caps_routing(children, weight, {}, 2, 1, options).poses * probe).sum();
  };
  loss().backward();
  expect_close(children.grad(), finite_differences(loss, children), 1e-7);
  expect_close(weight.grad(), finite_differences(loss, weight), 1e-7);
}

}  // namespace
}  // namespace remcaps
