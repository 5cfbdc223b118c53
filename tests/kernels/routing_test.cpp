// The routing kernels on raw pointers, compared with loops in double precision. tests/ops compares
// them with tensor code on many more shapes, gradients included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "remcaps/kernels/routing/dynamic_routing.h"
#include "remcaps/kernels/routing/few_images.h"
#include "remcaps/kernels/routing/scaled_distance.h"
#include "remcaps/kernels/routing/steps.h"

namespace remcaps::kernels {
namespace {

struct Layer {
  explicit Layer(const RoutingShape& layer_shape)
      : shape(layer_shape),
        children(random(shape.batch * shape.children * shape.child_dim)),
        weight(random(shape.children * shape.pose_size() * shape.child_dim)),
        bias(random(shape.pose_size())),
        poses(shape.batch * shape.pose_size()),
        couplings(shape.batch * shape.children * shape.parents) {
    rule.first_coupling = 1.0F / static_cast<float>(shape.parents);
  }

  std::vector<float> random(int64_t count) {
    std::normal_distribution<float> normal(0, 0.4F);
    std::vector<float> values(count);
    for (float& value : values) value = normal(generator);
    return values;
  }

  std::mt19937 generator{5};
  RoutingShape shape;
  RoutingRule rule;
  std::vector<float> children, weight, bias;
  std::vector<float> poses, couplings;
};

std::vector<double> softmax(const std::vector<double>& logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  std::vector<double> result;
  for (const double logit : logits) result.push_back(std::exp(logit - highest));
  for (const double x : result) total += x;
  for (double& x : result) x /= total;
  return result;
}

// Routes the images one by one. Expects the layer's poses and couplings to be the result.
void expect_result(const Layer& layer) {
  const auto [B, I, J, Din, Dout] = layer.shape;
  const bool by_distance = layer.rule.agreement != Agreement::kProduct;
  for (int64_t b = 0; b < B; ++b) {
    const float* children = layer.children.data() + b * I * Din;
    std::vector<double> votes(I * J * Dout);
    for (int64_t i = 0; i < I; ++i)
      for (int64_t j = 0; j < J; ++j) {
        double vote2 = 0, child2 = 0;
        double* vote = votes.data() + (i * J + j) * Dout;
        for (int64_t k = 0; k < Din; ++k)
          child2 += double(children[i * Din + k]) * double(children[i * Din + k]);
        for (int64_t d = 0; d < Dout; ++d) {
          for (int64_t k = 0; k < Din; ++k)
            vote[d] += double(layer.weight[((i * J + j) * Dout + d) * Din + k]) *
                       double(children[i * Din + k]);
          vote2 += vote[d] * vote[d];
        }
        if (by_distance && vote2 > child2)
          for (int64_t d = 0; d < Dout; ++d) vote[d] *= std::sqrt(child2 / vote2);
      }

    std::vector<double> logits(I * J), couplings(I * J), poses(J * Dout);
    for (int64_t iteration = 0; iteration < layer.rule.iterations; ++iteration) {
      for (int64_t i = 0; i < I; ++i) {
        const auto first = logits.begin() + i * J;
        const std::vector<double> row = softmax({first, first + J});
        std::copy(row.begin(), row.end(), couplings.begin() + i * J);
      }
      for (int64_t j = 0; j < J; ++j) {
        double n2 = 0;
        for (int64_t d = 0; d < Dout; ++d) {
          double sum = double(layer.bias[j * Dout + d]);
          for (int64_t i = 0; i < I; ++i)
            sum += couplings[i * J + j] * votes[(i * J + j) * Dout + d];
          poses[j * Dout + d] = sum;
          n2 += sum * sum;
        }
        for (int64_t d = 0; d < Dout; ++d)
          poses[j * Dout + d] *= n2 / ((1 + n2) * std::sqrt(n2 + double(layer.rule.epsilon)));
      }
      double mean = 0;
      for (int64_t pair = 0; pair < I * J; ++pair) {
        double product = 0, distance2 = 0;
        for (int64_t d = 0; d < Dout; ++d) {
          const double vote = votes[pair * Dout + d], pose = poses[pair % J * Dout + d];
          product += vote * pose;
          distance2 += (pose - vote) * (pose - vote);
        }
        logits[pair] = by_distance ? std::sqrt(distance2) : logits[pair] + product;
        mean += std::sqrt(distance2) / double(I * J);
      }
      if (by_distance)
        for (double& logit : logits) logit *= std::log(9.0 * double(J - 1)) / (-0.5 * mean);
    }
    for (int64_t x = 0; x < J * Dout; ++x)
      ASSERT_NEAR(layer.poses[b * J * Dout + x], poses[x], 1e-5) << "image " << b;
    for (int64_t x = 0; x < I * J; ++x)
      ASSERT_NEAR(layer.couplings[b * I * J + x], couplings[x], 1e-5) << "image " << b;
  }
}

const RoutingShape kShape{
    .batch = 37, .children = 45, .parents = 10, .child_dim = 8, .parent_dim = 16};

TEST(RoutingKernels, RouteByAgreement) {
  Layer layer(kShape);
  cpu::dynamic_routing_forward(layer.shape, layer.rule, layer.children.data(), layer.weight.data(),
                               layer.bias.data(), layer.poses.data(), layer.couplings.data(),
                               /*saved=*/nullptr);
  expect_result(layer);
}

TEST(RoutingKernels, RouteAFewImages) {
  Layer layer({.batch = 2, .children = 45, .parents = 10, .child_dim = 8, .parent_dim = 16});
  const cpu::ChildMatrices matrices(layer.shape, layer.weight.data());
  cpu::few_images_forward(layer.shape, layer.rule, layer.children.data(), matrices,
                          layer.bias.data(), layer.poses.data(), layer.couplings.data());
  expect_result(layer);
}

TEST(RoutingKernels, RouteWithTheWeightsThatAreLeft) {
  if (!cpu::reads_sparse_matrices()) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const int64_t child_dim : {8, 5}) {
    // More images than are routed together.
    Layer layer({.batch = simd::kVotesTogether + 2,
                 .children = 77,
                 .parents = 6,
                 .child_dim = child_dim,
                 .parent_dim = 16});
    std::vector<uint32_t> places;
    std::vector<float> values;
    for (size_t place = 0; place < layer.weight.size(); ++place) {
      const bool dead = place < static_cast<size_t>(40 * child_dim) || layer.generator() % 7 != 0;
      if (dead) {
        layer.weight[place] = 0;
        continue;
      }
      places.push_back(static_cast<uint32_t>(place));
      values.push_back(layer.weight[place]);
    }
    const cpu::ChildMatrices matrices(layer.shape, places, values);
    EXPECT_TRUE(matrices.is_sparse());
    cpu::few_images_forward(layer.shape, layer.rule, layer.children.data(), matrices,
                            layer.bias.data(), layer.poses.data(), layer.couplings.data());
    expect_result(layer);
    RoutingShape one = layer.shape;
    one.batch = 1;
    std::vector<float> poses(static_cast<size_t>(one.pose_size()));
    for (int64_t image = 0; image < layer.shape.batch; ++image) {
      cpu::few_images_forward(one, layer.rule,
                              layer.children.data() + image * one.children * one.child_dim,
                              matrices, layer.bias.data(), poses.data(), nullptr);
      EXPECT_TRUE(
          std::equal(poses.begin(), poses.end(), layer.poses.begin() + image * one.pose_size()));
    }
  }
}

TEST(RoutingKernels, RouteByScaledDistance) {
  Layer layer(kShape);
  layer.rule.agreement = Agreement::kImageDistance;
  cpu::scaled_distance_forward(layer.shape, layer.rule, layer.children.data(), layer.weight.data(),
                               layer.bias.data(), layer.poses.data(), layer.couplings.data(),
                               /*saved=*/nullptr);
  expect_result(layer);
}

TEST(RoutingKernels, GroupsHoldEveryImageAndZerosBeyondTheBatch) {
  constexpr int64_t kSize = 131;
  const cpu::Cut cut(kShape);
  std::vector<float> rows(kShape.batch * kSize), back(rows.size());
  for (size_t x = 0; x < rows.size(); ++x) rows[x] = static_cast<float>(x + 1);
  const Buffer groups(cut.groups * kSize * cut.lanes);
  cpu::to_groups(cut, kShape.batch, kSize, rows.data(), groups.get());
  for (int64_t x = 0; x < kSize; ++x)
    for (int64_t image = 0; image < cut.groups * cut.lanes; ++image)
      ASSERT_EQ(groups.get()[(image / cut.lanes * kSize + x) * cut.lanes + image % cut.lanes],
                image < kShape.batch ? rows[image * kSize + x] : 0.0F);
  cpu::from_groups(cut, kShape.batch, kSize, groups.get(), back.data());
  EXPECT_EQ(back, rows);
}

}  // namespace
}  // namespace remcaps::kernels
