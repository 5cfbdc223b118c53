// Which implementation routes, as a table.
#include <gtest/gtest.h>

#include "remcaps/ops/routing.h"

namespace remcaps {
namespace {

using kernels::Agreement;
using kernels::RoutingShape;

constexpr auto kProduct = Agreement::kProduct;
constexpr auto kBatch = Agreement::kBatchDistance, kImage = Agreement::kImageDistance;

RoutingShape layer(int64_t batch, int64_t child_dim = 8, int64_t parent_dim = 16) {
  return {.batch = batch,
          .children = 1152,
          .parents = 10,
          .child_dim = child_dim,
          .parent_dim = parent_dim};
}

TEST(RoutingChoice, IsThisTable) {
  const int64_t few = kernels::cpu::most_few_images(), many = few + 1;
  const bool yes = true, no = false;
  struct Row {
    const char* why;
    Agreement agreement;
    RoutingShape shape;
    torch::DeviceType device;
    bool float32, gradient, packed, cuda_kernels;
    RoutingPath expected;
  };
  const Row rows[] = {
      {"a batch", kProduct, layer(128), torch::kCPU, yes, no, no, no, RoutingPath::kCpu},
      {"its training", kProduct, layer(128), torch::kCPU, yes, yes, no, no, RoutingPath::kCpu},
      {"any pose size", kProduct, layer(128, 5, 13), torch::kCPU, yes, no, no, no,
       RoutingPath::kCpu},
      {"one image", kProduct, layer(1), torch::kCPU, yes, no, no, no, RoutingPath::kCpu},
      {"one, packed", kProduct, layer(1), torch::kCPU, yes, no, yes, no, RoutingPath::kFewImages},
      {"few, packed", kProduct, layer(few), torch::kCPU, yes, no, yes, no, RoutingPath::kFewImages},
      {"many, packed", kProduct, layer(many), torch::kCPU, yes, no, yes, no, RoutingPath::kCpu},
      {"few, packed, gradient", kProduct, layer(few), torch::kCPU, yes, yes, yes, no,
       RoutingPath::kCpu},
      {"few by distance", kBatch, layer(few), torch::kCPU, yes, no, yes, no, RoutingPath::kCpu},
      {"distance, any size", kImage, layer(128, 5, 13), torch::kCPU, yes, yes, no, no,
       RoutingPath::kCpu},
      {"float64", kProduct, layer(128), torch::kCPU, no, no, no, no, RoutingPath::kPlain},
      {"float64 by distance", kBatch, layer(128), torch::kCPU, no, no, no, no, RoutingPath::kPlain},
      {"no images", kProduct, layer(0), torch::kCPU, yes, no, yes, no, RoutingPath::kPlain},
      {"no layer", kProduct, {}, torch::kCPU, yes, no, no, no, RoutingPath::kPlain},
      {"GPU", kProduct, layer(128), torch::kCUDA, yes, yes, no, yes, RoutingPath::kCuda},
      {"GPU, any pose size", kProduct, layer(128, 5, 13), torch::kCUDA, yes, no, no, yes,
       RoutingPath::kCuda},
      {"GPU, packed", kProduct, layer(1), torch::kCUDA, yes, no, yes, yes, RoutingPath::kCuda},
      {"GPU, 8 to 8 by distance", kBatch, layer(128, 8, 8), torch::kCUDA, yes, no, no, yes,
       RoutingPath::kCuda},
      {"GPU, 8 to 16 by distance", kImage, layer(128, 8, 16), torch::kCUDA, yes, yes, no, yes,
       RoutingPath::kCuda},
      {"GPU, 8 to 32 by distance", kBatch, layer(128, 8, 32), torch::kCUDA, yes, no, no, yes,
       RoutingPath::kCuda},
      {"GPU, 16 to 16 by distance", kBatch, layer(128, 16, 16), torch::kCUDA, yes, no, no, yes,
       RoutingPath::kCuda},
      {"GPU, 16 to 8 by distance", kBatch, layer(128, 16, 8), torch::kCUDA, yes, no, no, yes,
       RoutingPath::kPlain},
      {"GPU, float64", kProduct, layer(128), torch::kCUDA, no, no, no, yes, RoutingPath::kPlain},
      {"GPU without kernels", kProduct, layer(128), torch::kCUDA, yes, no, no, no,
       RoutingPath::kPlain},
      {"another device", kProduct, layer(128), torch::kXPU, yes, no, no, yes, RoutingPath::kPlain},
  };
  for (const Row& row : rows)
    EXPECT_EQ(choose_routing({.agreement = row.agreement,
                              .shape = row.shape,
                              .device = row.device,
                              .float32 = row.float32,
                              .gradient = row.gradient,
                              .packed = row.packed,
                              .cuda_kernels = row.cuda_kernels}),
              row.expected)
        << row.why;
}

// check_routing_inputs() has the error message for shapes that do not fit.
TEST(RoutingChoice, ThereIsNoKernelForTensorsOfOtherDimensions) {
  EXPECT_FALSE(has_fused_dynamic_routing(torch::zeros({2, 3}), torch::zeros({3, 4, 5, 6})));
  EXPECT_FALSE(has_fused_scaled_distance_routing(torch::zeros({2, 3, 6}), torch::zeros({3, 4})));
}

}  // namespace
}  // namespace remcaps
