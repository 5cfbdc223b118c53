#include "remcaps/explain/faithfulness.h"

#include <gtest/gtest.h>

#include "remcaps/capsule/backtrack.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/runs/load.h"
#include "tests/explain/tiny_run.h"
#include "tests/explain/traces.h"

namespace remcaps {
namespace {

using testing::floats;

// A "network" whose answer is the mean of the first row of a 2 x 2 image.
Tensor first_row(const Tensor& images) {
  return images.select(1, 0).select(1, 0).mean(1);
}

TEST(PixelOrder, StartsWithTheLargestValuesAndShufflesEqualOnes) {
  const Tensor maps = floats({1, 3, 2, 2}, {1, 2, 2});
  const Tensor order = pixel_order(maps, floats({0, 0, 0.9, 0.1}, {1, 2, 2}));
  EXPECT_TRUE(order.equal(torch::tensor({1, 2, 3, 0}, torch::kLong).view({1, 4})));
  const Tensor other = pixel_order(maps, floats({0, 0, 0.1, 0.9}, {1, 2, 2}));
  EXPECT_TRUE(other.equal(torch::tensor({1, 3, 2, 0}, torch::kLong).view({1, 4})));
}

TEST(PixelCurves, AnAnswerFallsAsItsOwnPixelsGoAndStaysAsOthersGo) {
  const Tensor image = torch::ones({1, 1, 2, 2}), black = torch::zeros({1, 1, 1});
  const auto curves_of = [&](std::vector<int64_t> order) {
    return pixel_curves(first_row, image, black, torch::tensor(order, torch::kLong).view({1, 4}),
                        4);
  };
  const PixelCurves best = curves_of({0, 1, 2, 3}), worst = curves_of({2, 3, 0, 1});
  const auto doubles = [](const std::vector<double>& values) {
    return torch::tensor(values, torch::kDouble).view({1, -1});
  };
  EXPECT_TRUE(best.deletion.equal(doubles({1, 0.5, 0, 0, 0})));
  EXPECT_TRUE(best.insertion.equal(doubles({0, 0.5, 1, 1, 1})));
  EXPECT_TRUE(worst.deletion.equal(doubles({1, 1, 1, 0.5, 0})));
  EXPECT_NEAR(area_under(best.deletion).item<double>(), 0.25, 1e-12);
  EXPECT_NEAR(area_under(worst.deletion).item<double>(), 0.75, 1e-12);
}

TEST(GradCam, IsThePositivePartOfPosesTimesTheirMeanGradient) {
  const testing::TinyRuns runs;
  const LoadedRun run = load_run(runs.on_grid(), torch::kCPU);
  const Batch batch = run.source(run.load_data(""), "test").evaluation_batch(0, 2);
  const Tensor classes = torch::tensor({1, 2}, torch::kLong);
  run.model->eval();
  const Tensor map = grad_cam(*run.model, batch.images, {}, 0, classes);
  ASSERT_EQ(map.sizes(), (std::vector<int64_t>{2, 18, 18}));
  EXPECT_GE(map.min().item<double>(), 0);
  EXPECT_FALSE(map.requires_grad());

  // By hand: move every capsule of a type along one component and see the length change.
  ForwardOptions traced;
  traced.trace = true;
  const Forward forward = run.model->forward(batch.images, traced);
  const Tensor children = forward.routings[0].children.detach().requires_grad_();
  const CapsuleGrid& grid = forward.routings[0].grids[0];
  const auto parameters = run.model->named_parameters();
  const RoutingResult routed =
      RoutingPtr(DynamicRouting{})
          ->route(children, parameters["class.weight"], parameters["class.bias"]);
  routed.poses.norm(2, -1).gather(1, classes.view({-1, 1})).sum().backward();
  Tensor values = torch::zeros({2, children.size(1)});
  for (int64_t d = 0; d < children.size(2); ++d) {
    const Tensor weight = on_grid(children.grad().select(2, d), grid).mean({2, 3});  // [2, types]
    values +=
        (weight.unsqueeze(2) * on_grid(children.detach().select(2, d), grid).flatten(2)).flatten(1);
  }
  const Tensor cells = values.view({2, grid.types, -1}).sum(1).clamp_min(0);
  EXPECT_NEAR(map.sum().item<double>(), cells.sum().item<double>(), 1e-5);
  EXPECT_GT(cells.sum().item<double>(), 0);
}

}  // namespace
}  // namespace remcaps
