#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/data/augment.h"
#include "remcaps/data/batches.h"
#include "remcaps/data/descriptor.h"
#include "tests/data/fixtures.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps::testing {
namespace {

using ::testing::HasSubstr;

Dataset noisy_set(int64_t n, int64_t channels, int64_t side) {
  Dataset set;
  set.images = noise({n, channels, side, side});
  set.labels = torch::arange(n, torch::kInt64) % 10;
  return set;
}

// Random numbers that are all `value`, for a batch of n.
torch::Tensor fixed_draws(int64_t n, float value) {
  return torch::full({static_cast<int64_t>(Draw::kCount), n}, value);
}

void set_draw(torch::Tensor& draws, Draw which, float value) {
  draws[static_cast<int64_t>(which)].fill_(value);
}

torch::Tensor train(const torch::Tensor& bytes, const AugmentOptions& options,
                    const torch::Tensor& draws) {
  return finish_for_training(pad_and_resize(bytes, options), options, draws);
}

TEST(Augment, WithoutOptionsItOnlyDividesBy255) {
  const torch::Tensor bytes = noise({2, 3, 4, 5});
  EXPECT_TRUE(torch::allclose(prepare_images(bytes, {}), bytes.to(torch::kFloat32) / 255));
  EXPECT_TRUE(torch::equal(train(bytes, {}, fixed_draws(2, 0.7f)), prepare_images(bytes, {})));
}

TEST(Augment, NormalizesPerChannel) {
  AugmentOptions options;
  options.mean = {0.1, 0.2, 0.3};
  options.std = {1.0, 2.0, 4.0};
  const torch::Tensor out = prepare_images(torch::full({1, 3, 1, 1}, 255, torch::kUInt8), options);
  EXPECT_FLOAT_EQ(out[0][0][0][0].item<float>(), 0.9f);
  EXPECT_FLOAT_EQ(out[0][1][0][0].item<float>(), 0.4f);
  EXPECT_FLOAT_EQ(out[0][2][0][0].item<float>(), 0.175f);
}

TEST(Augment, StandardizeGivesMeanZeroAndDeviationOnePerImageAndChannel) {
  AugmentOptions options;
  options.standardize = true;
  const torch::Tensor out = prepare_images(noise({3, 2, 8, 8}), options);
  EXPECT_LT(out.mean({2, 3}).abs().max().item<float>(), 1e-5);
  EXPECT_LT((out.square().mean({2, 3}) - 1).abs().max().item<float>(), 1e-4);
  EXPECT_TRUE(torch::isfinite(prepare_images(torch::zeros({1, 1, 8, 8}, torch::kUInt8), options))
                  .all()
                  .item<bool>());
}

TEST(Augment, ShiftMovesImagesByWholePixelsAndBringsInZeros) {
  AugmentOptions options;
  options.shift = 2;
  const torch::Tensor bytes =
      (noise({1, 1, 6, 6}) / 2 + 100).to(torch::kUInt8);  // no zeros of its own
  const torch::Tensor plain = prepare_images(bytes, {});
  for (int row = 0; row < 5; ++row)
    for (int column = 0; column < 5; ++column) {
      torch::Tensor draws = fixed_draws(1, 0.0f);
      set_draw(draws, Draw::kShiftRow, (static_cast<float>(row) + 0.5f) / 5);
      set_draw(draws, Draw::kShiftColumn, (static_cast<float>(column) + 0.5f) / 5);
      const torch::Tensor out = train(bytes, options, draws)[0][0];
      for (int y = 0; y < 6; ++y)
        for (int x = 0; x < 6; ++x) {
          const int from_y = y + row - 2, from_x = x + column - 2;
          const bool inside = from_y >= 0 && from_y < 6 && from_x >= 0 && from_x < 6;
          const float expected = inside ? plain[0][0][from_y][from_x].item<float>() : 0.0f;
          ASSERT_FLOAT_EQ(out[y][x].item<float>(), expected);
        }
    }
}

TEST(Augment, EveryShiftAndFlipOccursAboutEquallyOften) {
  AugmentOptions options;
  options.shift = 2;
  options.flip = true;
  const int64_t n = 5000;
  const torch::Tensor draws = augment_draws(options, 42, 0, torch::arange(n, torch::kInt64));
  const torch::Tensor counts = torch::bincount(
      (draws[static_cast<int64_t>(Draw::kShiftRow)] * 5).floor().to(torch::kInt64), {}, 5);
  EXPECT_EQ(counts.size(0), 5);
  EXPECT_GT(counts.min().item<int64_t>(), 850);
  const auto flips = (draws[static_cast<int64_t>(Draw::kFlip)] < 0.5).sum().item<int64_t>();
  EXPECT_NEAR(static_cast<double>(flips), 2500, 150);
  // Rows that the options do not use are not drawn.
  EXPECT_EQ(draws[static_cast<int64_t>(Draw::kRotation)].abs().sum().item<float>(), 0);
}

TEST(Augment, FlipMirrorsColumns) {
  AugmentOptions options;
  options.flip = true;
  const torch::Tensor bytes = noise({1, 3, 4, 5});
  EXPECT_TRUE(torch::equal(train(bytes, options, fixed_draws(1, 0.1f)), prepare_images(bytes, {})));
  EXPECT_TRUE(
      torch::equal(train(bytes, options, fixed_draws(1, 0.9f)), prepare_images(bytes.flip(3), {})));
}

TEST(Augment, CropIsRandomInTrainingAndCentredInEvaluation) {
  AugmentOptions options;
  options.crop = 4;
  const torch::Tensor bytes = noise({1, 2, 8, 8});
  const torch::Tensor plain = prepare_images(bytes, {});
  const auto window = [&](int64_t y, int64_t x) { return plain.narrow(2, y, 4).narrow(3, x, 4); };
  EXPECT_TRUE(torch::equal(prepare_images(bytes, options), window(2, 2)));
  EXPECT_TRUE(torch::equal(train(bytes, options, fixed_draws(1, 0.0f)), window(0, 0)));
  EXPECT_TRUE(torch::equal(train(bytes, options, fixed_draws(1, 0.9999f)), window(4, 4)));
}

TEST(Augment, PadThenResizeThenCropGiveTheShape) {
  AugmentOptions options;
  options.pad = 2;
  options.resize = 10;
  options.crop = 8;
  EXPECT_EQ(augmented_shape(options, {3, 4, 6}), (std::vector<int64_t>{3, 8, 8}));
  EXPECT_EQ(prepare_images(noise({2, 3, 4, 6}), options).sizes(), (torch::IntArrayRef{2, 3, 8, 8}));
  options.resize = options.crop = 0;
  const torch::Tensor padded =
      prepare_images((noise({1, 1, 4, 4}) / 2 + 100).to(torch::kUInt8), options);
  EXPECT_EQ(padded.sizes(), (torch::IntArrayRef{1, 1, 8, 8}));
  EXPECT_EQ((padded > 0).sum().item<int64_t>(), 16);
}

TEST(Augment, RotationTurnsAboutTheCentre) {
  AugmentOptions options;
  options.rotation = 90;
  const torch::Tensor bytes = noise({1, 1, 6, 6});
  const torch::Tensor plain = prepare_images(bytes, {});
  EXPECT_TRUE(torch::allclose(train(bytes, options, fixed_draws(1, 0.5f)), plain, 1e-4, 1e-4));
  const torch::Tensor turned = train(bytes, options, fixed_draws(1, 0.0f));
  EXPECT_TRUE(torch::allclose(turned, plain.rot90(1, {2, 3}), 1e-3, 1e-3) ||
              torch::allclose(turned, plain.rot90(-1, {2, 3}), 1e-3, 1e-3));
  // In between, corners come from outside: zeros.
  options.rotation = 45;
  EXPECT_NEAR(train(torch::full({1, 1, 9, 9}, 255, torch::kUInt8), options,
                    fixed_draws(1, 0.0f))[0][0][0][0]
                  .item<float>(),
              0.0f, 1e-6);
}

TEST(Augment, ColourJitterFollowsTorchvision) {
  AugmentOptions options;
  options.brightness = 0.25;
  options.contrast = {0.2, 1.8};
  const torch::Tensor bytes = noise({1, 3, 5, 5});
  const torch::Tensor x = prepare_images(bytes, {});
  const double b = 1.25 - 0.5 * 0.1, c = 0.2 + 1.6 * 0.9;  // for the draws below
  const auto brighten = [&](const torch::Tensor& t) { return (t * b).clamp(0, 1); };
  const auto contrast = [&](const torch::Tensor& t) {
    const torch::Tensor mean = (t[0][0] * 0.2989 + t[0][1] * 0.587 + t[0][2] * 0.114).mean();
    return (c * t + (1 - c) * mean).clamp(0, 1);
  };
  torch::Tensor draws = fixed_draws(1, 0.9f);
  for (const bool brightness_first : {true, false}) {
    set_draw(draws, Draw::kOrder, brightness_first ? 0.2f : 0.8f);
    const torch::Tensor expected = brightness_first ? contrast(brighten(x)) : brighten(contrast(x));
    EXPECT_TRUE(torch::allclose(train(bytes, options, draws), expected, 1e-4, 1e-5));
  }
}

TEST(Augment, NormalizedJitterActsBehindTheNormalisationWithoutClamping) {
  AugmentOptions options;
  options.brightness_add = 2.0;
  options.contrast = {0.5, 1.5};
  options.jitter = "normalized";
  options.mean = {0.5, 0.4};
  options.std = {0.1, 0.2};
  const torch::Tensor bytes = noise({1, 2, 6, 6});
  torch::Tensor draws = fixed_draws(1, 0.75f);  // adds 1, contrast 1.25
  const torch::Tensor normal = prepare_images(bytes, options);
  const torch::Tensor mean = normal.mean({2, 3}, true);
  const torch::Tensor expected = (normal - mean) * 1.25 + mean + 1.0;
  EXPECT_TRUE(torch::allclose(train(bytes, options, draws), expected, 1e-4, 1e-4));
}

TEST(Augment, RejectsOptionsThatDoNotFitTheImages) {
  AugmentOptions options;
  options.mean = {0.1, 0.2};
  EXPECT_THAT(error_of([&] {
                prepare_images(noise({1, 3, 4, 4}), options);
              }),
              HasSubstr("augment.mean has 2 numbers; images have 3 channel(s)"));
  options = {};
  options.crop = 5;
  EXPECT_THAT(error_of([&] {
                prepare_images(noise({1, 3, 4, 4}), options);
              }),
              HasSubstr("augment.crop is 5; images have 4 x 4 pixels"));
}

TEST(Augment, DefaultsFitEveryDataSet) {
  for (const std::string& name : dataset_names()) {
    if (name == "folder") continue;
    const AugmentOptions options = default_augment(name);
    EXPECT_NO_THROW(check_augment(options, find_dataset(name).shape)) << name;
  }
  EXPECT_EQ(default_augment("mnist").shift, 2);
  EXPECT_TRUE(default_augment("fashion-mnist").flip);
  EXPECT_EQ(augmented_shape(default_augment("smallnorb"), {2, 96, 96}),
            (std::vector<int64_t>{2, 48, 48}));
  EXPECT_EQ(augmented_shape(default_augment("affnist"), {1, 40, 40}),
            (std::vector<int64_t>{1, 40, 40}));
}

TEST(Augment, BindTakesTheDataSetsDefaultsAndRejectsNonsense) {
  DatasetOptions options;
  ConfigSection section(YAML::Load("{name: mnist, augment: {shift: 1}}"), "test", "dataset");
  bind(section, options);
  section.finish();
  EXPECT_EQ(options.augment.shift, 1);
  EXPECT_EQ(options.augment.mean, std::vector<double>{0.1307});
  EXPECT_EQ(section.resolved()["augment"]["shift"].as<int>(), 1);
  ConfigSection wrong(YAML::Load("{name: mnist, augment: {contrast: [2, 1]}}"), "test", "dataset");
  EXPECT_THAT(error_of([&] { bind(wrong, options); }), HasSubstr("augment.contrast is [2, 1]"));
  ConfigSection unknown(YAML::Load("{name: mnist, augment: {shfit: 1}}"), "test", "dataset");
  EXPECT_THAT(error_of([&] { bind(unknown, options); }), HasSubstr("did you mean shift?"));
}

AugmentOptions everything() {
  AugmentOptions options;
  options.resize = 12;
  options.crop = 10;
  options.shift = 1;
  options.flip = true;
  options.rotation = 15;
  options.brightness = 0.25;
  options.contrast = {0.2, 1.8};
  return options;
}

// The augmented image of every sample of an epoch.
torch::Tensor epoch_images(const BatchSource& source, int64_t batch, uint64_t seed,
                           uint64_t epoch) {
  std::vector<int64_t> shape = source.image_shape();
  shape.insert(shape.begin(), source.size());
  torch::Tensor images = torch::zeros(shape);
  torch::Tensor seen = torch::zeros({source.size()}, torch::kInt64);
  for (int64_t step = 0; step < source.batches(batch); ++step) {
    const Batch b = source.training_batch(step, batch, seed, epoch);
    images.index_copy_(0, b.indices, b.images);
    seen.index_add_(0, b.indices, torch::ones_like(b.indices));
  }
  EXPECT_TRUE((seen == 1).all().item<bool>()) << "every image once an epoch";
  return images;
}

TEST(BatchSource, AugmentationDependsOnNeitherBatchSizeNorOrder) {
  for (const int64_t side : {16, 8}) {  // a resize that shrinks, one that enlarges
    const BatchSource source(noisy_set(37, 3, side), everything(), torch::kCPU);
    const torch::Tensor reference = epoch_images(source, 37, 42, 3);
    EXPECT_TRUE(torch::equal(epoch_images(source, 8, 42, 3), reference));
    // A fresh source, asked for the last batch first.
    const BatchSource fresh(noisy_set(37, 3, side), everything(), torch::kCPU);
    const Batch last = fresh.training_batch(3, 10, 42, 3);
    EXPECT_EQ(last.images.size(0), 7);
    EXPECT_TRUE(torch::equal(last.images, reference.index_select(0, last.indices)));
    EXPECT_FALSE(torch::equal(epoch_images(source, 8, 42, 4), reference));
    EXPECT_FALSE(torch::equal(epoch_images(source, 8, 43, 3), reference));
  }
}

TEST(BatchSource, SharesOfTheProcessesAreTheWholeBatch) {
  const BatchSource whole(noisy_set(37, 3, 16), everything(), torch::kCPU);
  for (const int64_t processes : {2, 3, 8}) {
    std::vector<BatchSource> shares;
    for (int64_t rank = 0; rank < processes; ++rank)
      shares.emplace_back(noisy_set(37, 3, 16), everything(), torch::kCPU)
          .take_share(rank, processes, /*batch=*/8);
    for (int64_t step = 0; step < whole.batches(8); ++step) {
      const Batch expected = whole.training_batch(step, 8, 42, 3);
      std::vector<torch::Tensor> images, labels;
      double weight = 0;
      for (const BatchSource& source : shares) {
        const Batch share = source.training_batch(step, 8, 42, 3);
        EXPECT_EQ(share.whole, expected.labels.size(0));
        images.push_back(share.images);
        labels.push_back(share.labels);
        weight += share.weight;
        if (share.whole < 8) continue;
        const Batch counted = source.training_batch_at(torch::full({1}, step, torch::kInt64), 8);
        EXPECT_TRUE(torch::equal(counted.images, share.images));
        EXPECT_EQ(counted.weight, share.weight);
      }
      EXPECT_NEAR(weight, 1, 1e-12);
      if (expected.labels.size(0) < processes) {  // the last one: each process has all of it
        EXPECT_TRUE(torch::equal(images.back(), expected.images));
        continue;
      }
      EXPECT_TRUE(torch::equal(torch::cat(images), expected.images));
      EXPECT_TRUE(torch::equal(torch::cat(labels), expected.labels));
    }
  }
}

TEST(BatchSource, StepThatTheDeviceCountsHasTheSameBatch) {
  AugmentOptions moves;
  moves.shift = 2;
  moves.flip = true;
  moves.mean = {0.2, 0.4, 0.5};
  moves.std = {0.3};
  AugmentOptions more = moves;
  more.brightness = 0.25;
  for (const std::string& device : kernel_devices())
    for (const AugmentOptions& options : {AugmentOptions(), moves, more}) {
      SCOPED_TRACE(device);
      const BatchSource source(noisy_set(50, 3, 9), options, torch::Device(device));
      source.prepare_epoch(/*seed=*/7, /*epoch=*/3);
      for (const int64_t step : {0, 2}) {
        const Batch expected = source.training_batch(step, 16, 7, 3);
        const Batch found =
            source.training_batch_at(torch::full({1}, step, expected.labels.options()), 16);
        EXPECT_TRUE(torch::equal(found.indices, expected.indices));
        EXPECT_TRUE(torch::equal(found.labels, expected.labels));
        EXPECT_TRUE(torch::allclose(found.images, expected.images, 1e-5, 1e-6));
      }
    }
}

TEST(BatchSource, EvaluationBatchIsTheSameOnEveryDevice) {
  AugmentOptions varies;  // what training draws is no part of it
  varies.shift = 2;
  varies.flip = true;
  varies.rotation = 10;
  varies.brightness = 0.25;
  varies.mean = {0.2, 0.4, 0.5};
  varies.std = {0.3};
  AugmentOptions crops = varies, standardizes = varies;
  crops.crop = 6;
  standardizes.standardize = true;
  const Dataset set = noisy_set(50, 3, 9);
  for (const std::string& device : kernel_devices())
    for (const AugmentOptions& options : {AugmentOptions(), varies, crops, standardizes}) {
      SCOPED_TRACE(device);
      const BatchSource source(set, options, torch::Device(device));
      for (const int64_t first : {0, 16, 48}) {  // the last batch has 2
        const Batch found = source.evaluation_batch(first, 16);
        const int64_t count = std::min<int64_t>(16, 50 - first);
        EXPECT_TRUE(torch::equal(found.indices.cpu(), torch::arange(first, first + count)));
        EXPECT_TRUE(torch::equal(found.labels.cpu(), set.labels.narrow(0, first, count)));
        EXPECT_TRUE(torch::allclose(found.images.cpu(),
                                    prepare_images(set.images.narrow(0, first, count), options),
                                    1e-5, 1e-6));
      }
    }
}

TEST(BatchSource, ResizingOnceEqualsResizingEveryBatch) {
  const Dataset set = noisy_set(5, 3, 16);
  AugmentOptions options;
  options.resize = 12;
  const BatchSource source(set, options, torch::kCPU);
  EXPECT_EQ(source.image_shape(), (std::vector<int64_t>{3, 12, 12}));
  EXPECT_TRUE(
      torch::equal(source.evaluation_batch(0, 5).images, prepare_images(set.images, options)));
}

TEST(BatchSource, KeepsLabelsWithImagesAndOrderInEvaluation) {
  Dataset set = noisy_set(25, 1, 4);
  set.images = set.labels.to(torch::kUInt8).view({25, 1, 1, 1}).expand({25, 1, 4, 4}).contiguous();
  const BatchSource source(set, {}, torch::kCPU);
  EXPECT_EQ(source.batches(10), 3);
  for (int64_t step = 0; step < 3; ++step) {
    const Batch batch = source.training_batch(step, 10, 1, 0);
    EXPECT_TRUE(torch::allclose(batch.images.select(1, 0).select(1, 0).select(1, 0) * 255,
                                batch.labels.to(torch::kFloat32)));
  }
  const Batch tail = source.evaluation_batch(20, 10);
  EXPECT_TRUE(torch::equal(tail.indices, torch::arange(20, 25, torch::kInt64)));
  EXPECT_TRUE(torch::equal(tail.labels, set.labels.narrow(0, 20, 5)));
  EXPECT_THROW(source.evaluation_batch(25, 1), Error);
  EXPECT_THROW(source.training_batch(3, 10, 1, 0), Error);
}

}  // namespace
}  // namespace remcaps::testing
