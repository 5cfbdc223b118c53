#include "remcaps/explain/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/explain/pasted.h"
#include "remcaps/explain/perturb.h"
#include "tests/explain/traces.h"

namespace remcaps {
namespace {

using testing::connected;
using ::testing::ElementsAre;
using testing::floats;
using testing::forward_of;

// Three images, two classes, two children; predicted classes 0, 1, 0.
Forward three_images() {
  return forward_of(floats({0.9, 0.1, 0.2, 0.8, 0.7, 0.1}, {3, 2}),
                    {connected("class",
                               floats({0.2, 0.8, 1.0, 0.0,   //
                                       0.5, 0.5, 0.3, 0.7,   //
                                       0.6, 0.4, 1.0, 0.0},  //
                                      {3, 2, 2}),
                               torch::ones({3, 2}))});
}

TEST(CouplingStatistics, AveragesTheColumnOfThePredictedClass) {
  CouplingStatistics statistics(Quantizer::uniform(11));
  statistics.add(three_images());
  EXPECT_TRUE(torch::allclose(statistics.mean_couplings(),
                              floats({0.4, 1.0, 0.5, 0.7}, {2, 2}).to(torch::kDouble)));
  const Tensor means = statistics.histogram_of_means();
  EXPECT_EQ(means[0][4].item<int64_t>(), 1);
  EXPECT_EQ(means[0][10].item<int64_t>(), 1);
  EXPECT_EQ(means.sum().item<int64_t>(), 4) << "every child of every class falls on one level";
}

TEST(CouplingStatistics, HistogramCountsEveryCouplingOnce) {
  CouplingStatistics statistics(Quantizer::uniform(11));
  statistics.add(three_images());
  const Tensor histogram = statistics.histogram();
  EXPECT_EQ(histogram[0][2].item<int64_t>(), 1);
  EXPECT_EQ(histogram[0][6].item<int64_t>(), 1);
  EXPECT_EQ(histogram[0][10].item<int64_t>(), 2);
  EXPECT_EQ(histogram[1][5].item<int64_t>(), 1);
  EXPECT_EQ(histogram.sum().item<int64_t>(), 6);
}

TEST(CouplingStatistics, AClassWithoutImagesHasNoBars) {
  CouplingStatistics statistics(Quantizer::uniform(11));
  EXPECT_THROW(statistics.histogram(), Error);
  statistics.add(testing::small_tree());
  EXPECT_TRUE(statistics.mean_couplings()[0].isnan().all().item<bool>());
  EXPECT_EQ(statistics.histogram_of_means()[0].sum().item<int64_t>(), 0);
}

TEST(TreeGroups, ImagesWithTheSameTreeStandTogetherLargestGroupFirst) {
  const Tensor coupling = floats({0.2, 0.8, 0.9, 0.1,     //
                                  0.6, 0.4, 0.9, 0.1,     //
                                  0.61, 0.39, 0.9, 0.1},  // the same levels as the one before
                                 {3, 2, 2});
  TreeGroups groups(Quantizer::uniform(11), 2);
  groups.add(forward_of(floats({0.9, 0.1, 0.9, 0.1, 0.9, 0.1}, {3, 2}),
                        {connected("class", coupling, torch::ones({3, 2}))}),
             torch::tensor({40, 41, 42}, torch::kLong));
  EXPECT_EQ(groups.trees(0), 2);
  EXPECT_EQ(groups.trees(1), 0);
  EXPECT_THAT(groups.largest(0, 10), ElementsAre(ElementsAre(41, 42), ElementsAre(40)));
  EXPECT_EQ(groups.largest(0, 1).size(), 1u);
  EXPECT_TRUE(groups.largest(1, 5).empty());
}

// A network that "decodes" a pose by showing it as an image of 1 x D pixels.
class PoseShower : public CapsNet {
 public:
  explicit PoseShower(bool decoder) : CapsNet("pose-shower", {1, 1, 3}, 2) {
    ModelContext context;
    context.input = {1, 1, 3};
    context.classes = 2;
    using Kind = DecoderOptions::Kind;
    add_decoder({decoder ? Kind::kFc : Kind::kNone, {4}}, 3, context);
  }
  Forward forward(const Tensor&, const ForwardOptions&) override { return {}; }
  std::vector<RoutingLayer> routing_layers() const override { return {}; }
  std::vector<LayerCost> costs() const override { return {}; }
  std::vector<std::string> prunable_layers() const override { return {}; }
  Tensor decode(const Tensor& masked) override {
    return masked.sum(1).view({masked.size(0), 1, 1, -1});
  }
};

TEST(Perturb, MovesOneDimensionOfOnePoseAtATime) {
  PoseShower model(true);
  const Tensor pose = floats({0.1, 0.2, 0.3}, {3});
  const Tensor images = perturb(model, pose, 1, {-0.5, 0.0, 0.5});
  EXPECT_EQ(images.sizes(), (std::vector<int64_t>{3, 3, 1, 1, 3}));
  for (int64_t d = 0; d < 3; ++d) {
    EXPECT_TRUE(torch::allclose(images[d][1].flatten(), pose)) << "no offset, no change";
    Tensor expected = pose.clone();
    expected[d] += 0.5;
    EXPECT_TRUE(torch::allclose(images[d][2].flatten(), expected));
  }
}

TEST(Perturb, NeedsADecoder) {
  PoseShower model(false);
  EXPECT_THROW(perturb(model, torch::zeros({3}), 0, {0.0}), Error);
}

TEST(Perturb, OffsetsAreSymmetricAboutZero) {
  EXPECT_THAT(perturbation_offsets(0.25, 5), ElementsAre(-0.25, -0.125, 0, 0.125, 0.25));
  EXPECT_THROW(perturbation_offsets(0.25, 1), Error);
}

Dataset two_squares() {
  Dataset dataset;
  dataset.images = torch::zeros({2, 1, 6, 6}, torch::kByte);
  dataset.images.slice(2, 1, 5).slice(3, 2, 4).fill_(200);
  dataset.labels = torch::tensor({3, 7}, torch::kLong);
  return dataset;
}

TEST(PasteOnClutter, TheMaskIsWhereTheObjectStands) {
  const PastedImages pasted =
      paste_on_clutter(two_squares(), {.side = 16, .fragments = 5, .fragment_side = 3, .seed = 1});
  EXPECT_EQ(pasted.dataset.images.sizes(), (std::vector<int64_t>{2, 1, 16, 16}));
  EXPECT_TRUE(torch::equal(pasted.dataset.labels, two_squares().labels));
  for (int64_t n = 0; n < 2; ++n) {
    EXPECT_EQ(pasted.masks[n].sum().item<int64_t>(), 4 * 2);
    EXPECT_TRUE(pasted.dataset.images[n][0]
                    .masked_select(pasted.masks[n].ne(0))
                    .eq(200)
                    .all()
                    .item<bool>());
  }
}

TEST(PasteOnClutter, HolesBelongToTheObjectButGapsDoNot) {
  Dataset shape = two_squares();
  shape.images.zero_();
  Tensor picture = shape.images[0][0];
  picture.slice(0, 0, 3).slice(1, 0, 5).fill_(99);  // a block with a hole ...
  picture[1][2] = 0;
  picture[4][0] = 99;  // ... on two legs
  picture[4][4] = 99;
  picture[3][0] = 99;
  picture[3][4] = 99;
  const PastedImages pasted =
      paste_on_clutter(shape, {.side = 6, .fragments = 0, .fragment_side = 3, .seed = 1});
  EXPECT_EQ(pasted.masks[0][1][2].item<int>(), 1);
  EXPECT_EQ(pasted.masks[0][4][2].item<int>(), 0);
  EXPECT_EQ(pasted.masks[0].sum().item<int64_t>(), 15 + 4);
}

TEST(PasteOnClutter, ClutterLiesOutsideTheObjectTooAndDependsOnTheSeed) {
  const PasteOptions options = {.side = 24, .fragments = 30, .fragment_side = 4, .seed = 1};
  PasteOptions other = options;
  other.seed = 2;
  const PastedImages first = paste_on_clutter(two_squares(), options);
  EXPECT_GT(first.dataset.images.squeeze(1).masked_select(first.masks.eq(0)).sum().item<int64_t>(),
            0);
  EXPECT_TRUE(
      torch::equal(first.dataset.images, paste_on_clutter(two_squares(), options).dataset.images));
  EXPECT_FALSE(
      torch::equal(first.dataset.images, paste_on_clutter(two_squares(), other).dataset.images));
}

TEST(PasteOnClutter, RefusesACanvasSmallerThanTheObject) {
  EXPECT_THROW(paste_on_clutter(two_squares(), {.side = 5, .fragment_side = 3}), Error);
  EXPECT_THROW(paste_on_clutter(two_squares(), {.side = 12, .fragment_side = 7}), Error);
}

}  // namespace
}  // namespace remcaps
