#include "remcaps/data/augment.h"

#include <fmt/ranges.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/data/resize.h"
#include "remcaps/torch/random.h"

namespace remcaps {
namespace {

constexpr double kPi = 3.14159265358979323846;

bool changes_contrast(const AugmentOptions& options) {
  return options.contrast[0] != 1.0 || options.contrast[1] != 1.0;
}

bool jitters(const AugmentOptions& options) {
  return options.brightness > 0 || options.brightness_add > 0 || changes_contrast(options);
}

torch::Tensor row(const torch::Tensor& draws, Draw which) {
  return draws.select(0, static_cast<int64_t>(which));  // [B]
}

// Uniform in low..high, [B, 1, 1, 1].
torch::Tensor uniform(const torch::Tensor& draws, Draw which, double low, double high) {
  return (row(draws, which) * (high - low) + low).view({-1, 1, 1, 1});
}

// A whole number uniform in 0..count-1, int64 [B, 1].
torch::Tensor choice(const torch::Tensor& draws, Draw which, int64_t count) {
  return (row(draws, which) * static_cast<double>(count)).floor().to(torch::kInt64).unsqueeze(1);
}

// images[b, :, rows[b, y], columns[b, x]], zero where a place lies outside.
//   images [B, C, H, W], rows int64 [B, H'], columns int64 [B, W']
torch::Tensor pick(const torch::Tensor& images, const torch::Tensor& rows,
                   const torch::Tensor& columns, bool may_leave) {
  const int64_t b = images.size(0), c = images.size(1), h = images.size(2), w = images.size(3);
  const torch::Tensor place =
      (rows.clamp(0, h - 1).unsqueeze(2) * w + columns.clamp(0, w - 1).unsqueeze(1))
          .view({b, 1, -1})
          .expand({b, c, -1});
  torch::Tensor picked =
      images.reshape({b, c, h * w}).gather(2, place).view({b, c, rows.size(1), columns.size(1)});
  if (!may_leave) return picked;
  const torch::Tensor row_inside = (rows >= 0).logical_and(rows < h);
  const torch::Tensor column_inside = (columns >= 0).logical_and(columns < w);
  return picked * row_inside.unsqueeze(2).logical_and(column_inside.unsqueeze(1)).unsqueeze(1);
}

// Random crop, shift and flip: one gather.
torch::Tensor crop_shift_flip(const torch::Tensor& images, const AugmentOptions& options,
                              const torch::Tensor& draws) {
  if (options.crop == 0 && options.shift == 0 && !options.flip) return images;
  const auto index = torch::TensorOptions().dtype(torch::kInt64).device(images.device());
  const auto along = [&](int64_t size, Draw crop_draw, Draw shift_draw, bool flip) {
    const int64_t side = options.crop > 0 ? options.crop : size;
    torch::Tensor place = torch::arange(side, index).unsqueeze(0);  // [1, side]
    if (flip)
      place = torch::where(row(draws, Draw::kFlip).unsqueeze(1) < 0.5, place, side - 1 - place);
    if (options.crop > 0) place = place + choice(draws, crop_draw, size - side + 1);
    if (options.shift > 0)
      place = place + choice(draws, shift_draw, 2 * options.shift + 1) - options.shift;
    return place.expand({images.size(0), side});
  };
  return pick(images, along(images.size(2), Draw::kCropRow, Draw::kShiftRow, false),
              along(images.size(3), Draw::kCropColumn, Draw::kShiftColumn, options.flip),
              options.shift > 0);
}

// Rotation about the centre by up to +-degrees, bilinear. images float [B, C, H, W].
torch::Tensor rotate(const torch::Tensor& images, double degrees, const torch::Tensor& draws) {
  const int64_t h = images.size(2), w = images.size(3);
  const torch::Tensor angle =
      uniform(draws, Draw::kRotation, -degrees * kPi / 180, degrees * kPi / 180).view({-1, 1, 1});
  const torch::Tensor cos = angle.cos(), sin = angle.sin();
  // Pixel centres relative to the image's: [1, 1, W] and [1, H, 1].
  const torch::Tensor x =
      (torch::arange(w, images.options()) - static_cast<double>(w - 1) / 2).view({1, 1, w});
  const torch::Tensor y =
      (torch::arange(h, images.options()) - static_cast<double>(h - 1) / 2).view({1, h, 1});
  // In grid_sampler's coordinates an image reaches from -1 to 1.
  const torch::Tensor grid = torch::stack({(cos * x + sin * y) * (2.0 / static_cast<double>(w)),
                                           (cos * y - sin * x) * (2.0 / static_cast<double>(h))},
                                          -1);  // [B, H, W, 2]
  return torch::grid_sampler(images, grid, /*interpolation_mode=*/0, /*padding_mode=*/0,
                             /*align_corners=*/false);
}

// torchvision's ColorJitter on images in 0..1, brightness before contrast for half the images.
torch::Tensor jitter_pixels(torch::Tensor x, const AugmentOptions& options,
                            const torch::Tensor& draws) {
  if (options.brightness_add > 0)
    x = (x + uniform(draws, Draw::kBrightnessAdd, -options.brightness_add, options.brightness_add))
            .clamp_(0, 1);
  const torch::Tensor first = row(draws, Draw::kOrder).view({-1, 1, 1, 1}) < 0.5;
  torch::Tensor factor;
  if (options.brightness > 0) {
    factor = uniform(draws, Draw::kBrightness, 1 - options.brightness, 1 + options.brightness);
    x = (x * torch::where(first, factor, torch::ones_like(factor))).clamp_(0, 1);
  }
  if (changes_contrast(options)) {
    const torch::Tensor grey =
        x.size(1) == 3 ? x.select(1, 0) * 0.2989 + x.select(1, 1) * 0.587 + x.select(1, 2) * 0.114
                       : x.mean(1);
    const torch::Tensor mean = grey.mean({1, 2}).view({-1, 1, 1, 1});
    const torch::Tensor contrast =
        uniform(draws, Draw::kContrast, options.contrast[0], options.contrast[1]);
    x = ((x - mean) * contrast + mean).clamp_(0, 1);
  }
  if (options.brightness > 0)
    x = (x * torch::where(first, torch::ones_like(factor), factor)).clamp_(0, 1);
  return x;
}

// Efficient-CapsNet's jitter of normalised images.
torch::Tensor jitter_normalized(torch::Tensor x, const AugmentOptions& options,
                                const torch::Tensor& draws) {
  if (options.brightness_add > 0)
    x = x + uniform(draws, Draw::kBrightnessAdd, -options.brightness_add, options.brightness_add);
  if (options.brightness > 0)
    x = x * uniform(draws, Draw::kBrightness, 1 - options.brightness, 1 + options.brightness);
  const torch::Tensor mean = x.mean({2, 3}, /*keepdim=*/true);
  return (x - mean) * uniform(draws, Draw::kContrast, options.contrast[0], options.contrast[1]) +
         mean;
}

torch::Tensor per_channel(const std::vector<double>& values, const torch::Tensor& like) {
  if (like.is_cuda()) {
    // Filled there: a copy from the host would wait for the device, and a CUDA graph cannot hold
    // it.
    const auto count = static_cast<int64_t>(values.size());
    torch::Tensor result = torch::empty({1, count, 1, 1}, like.options().dtype(torch::kFloat32));
    for (int64_t c = 0; c < count; ++c) result.select(1, c).fill_(values[static_cast<size_t>(c)]);
    return result;
  }
  // Made on the CPU first: the same rounding to float on every device.
  return torch::tensor(values, torch::kFloat64)
      .to(torch::kFloat32)
      .to(like.device())
      .view({1, -1, 1, 1});
}

torch::Tensor normalize(const torch::Tensor& x, const AugmentOptions& options) {
  if (!options.standardize) return (x - per_channel(options.mean, x)) / per_channel(options.std, x);
  const torch::Tensor mean = x.mean({2, 3}, /*keepdim=*/true);
  const torch::Tensor deviation = (x - mean).square().mean({2, 3}, /*keepdim=*/true).sqrt();
  // A blank image stays finite: its deviation counts as that of one pixel a level off.
  const double least = 1.0 / (255.0 * std::sqrt(static_cast<double>(x.size(2) * x.size(3))));
  return (x - mean) / deviation.clamp_min(least);
}

torch::Tensor to_unit(const torch::Tensor& images) {
  return images.to(torch::kFloat32) / 255.0;
}

}  // namespace

torch::Tensor augment_draws(const AugmentOptions& options, uint64_t seed, uint64_t epoch,
                            const torch::Tensor& samples) {
  const auto count = static_cast<int64_t>(Draw::kCount);
  torch::Tensor draws =
      torch::zeros({count, samples.size(0)},
                   torch::TensorOptions().dtype(torch::kFloat32).device(samples.device()));
  const auto fill = [&](bool used, std::initializer_list<Draw> which) {
    for (const Draw draw : which)
      if (used)
        row(draws, draw)
            .copy_(random_uniform(seed, RandomStream::kAugment, epoch, samples,
                                  static_cast<uint32_t>(draw)));
  };
  const bool contrast = changes_contrast(options);
  fill(options.crop > 0, {Draw::kCropRow, Draw::kCropColumn});
  fill(options.shift > 0, {Draw::kShiftRow, Draw::kShiftColumn});
  fill(options.flip, {Draw::kFlip});
  fill(options.rotation > 0, {Draw::kRotation});
  fill(options.brightness > 0, {Draw::kBrightness});
  fill(options.brightness_add > 0, {Draw::kBrightnessAdd});
  fill(contrast, {Draw::kContrast});
  fill(options.brightness > 0 && contrast, {Draw::kOrder});
  return draws;
}

void check_augment(const AugmentOptions& options, const std::vector<int64_t>& image) {
  const auto channels = static_cast<size_t>(image[0]);
  for (const auto& [name, values] : {std::pair{"mean", &options.mean}, {"std", &options.std}})
    if (values->size() != 1 && values->size() != channels)
      throw UsageError(fmt::format("augment.{} has {} numbers; images have {} channel(s)", name,
                                   values->size(), channels));
  const int64_t height = options.resize > 0 ? options.resize : image[1] + 2 * options.pad;
  const int64_t width = options.resize > 0 ? options.resize : image[2] + 2 * options.pad;
  if (options.crop > std::min(height, width))
    throw UsageError(
        fmt::format("augment.crop is {}; images have {} x {} pixels", options.crop, height, width));
  if (options.contrast.size() != 2)
    throw UsageError("augment.contrast: expected [lowest, highest]");
}

bool only_normalizes(const AugmentOptions& options) {
  return options.pad == 0 && options.resize == 0 && options.crop == 0 && !options.standardize;
}

bool only_moves_pixels(const AugmentOptions& options) {
  return only_normalizes(options) && options.rotation == 0 && !jitters(options);
}

std::string training_changes(const AugmentOptions& options) {
  std::vector<std::string> changes;
  if (options.crop > 0) changes.push_back(fmt::format("crop {}", options.crop));
  if (options.shift > 0) changes.push_back(fmt::format("shift {}", options.shift));
  if (options.flip) changes.emplace_back("flip");
  if (options.rotation > 0) changes.push_back(fmt::format("rotation {}", options.rotation));
  if (options.brightness > 0) changes.push_back(fmt::format("brightness {}", options.brightness));
  if (options.brightness_add > 0)
    changes.push_back(fmt::format("brightness_add {}", options.brightness_add));
  if (changes_contrast(options))
    changes.push_back(fmt::format("contrast {}", fmt::join(options.contrast, "-")));
  return fmt::format("{}", fmt::join(changes, ", "));
}

std::vector<int64_t> augmented_shape(const AugmentOptions& options,
                                     const std::vector<int64_t>& image) {
  std::vector<int64_t> shape = image;
  for (const size_t axis : {1, 2}) {
    shape[axis] += 2 * options.pad;
    if (options.resize > 0) shape[axis] = options.resize;
    if (options.crop > 0) shape[axis] = options.crop;
  }
  return shape;
}

torch::Tensor pad_and_resize(const torch::Tensor& bytes, const AugmentOptions& options) {
  torch::Tensor images = bytes;
  if (options.pad > 0)
    images =
        torch::constant_pad_nd(images, {options.pad, options.pad, options.pad, options.pad}, 0);
  return options.resize > 0
             ? resize_images(images, options.resize, options.resize, options.antialias)
             : images;
}

torch::Tensor finish_for_evaluation(const torch::Tensor& bytes, const AugmentOptions& options) {
  torch::Tensor images = bytes;
  if (options.crop > 0)
    images = images.narrow(2, (images.size(2) - options.crop) / 2, options.crop)
                 .narrow(3, (images.size(3) - options.crop) / 2, options.crop);
  return normalize(to_unit(images), options);
}

torch::Tensor finish_for_training(const torch::Tensor& bytes, const AugmentOptions& options,
                                  const torch::Tensor& draws) {
  torch::Tensor images = bytes;
  const bool rotated = options.rotation > 0;
  if (rotated) images = rotate(to_unit(images), options.rotation, draws);
  images = crop_shift_flip(images, options, draws);
  if (!rotated) images = to_unit(images);
  if (options.jitter == "pixels" && jitters(options))
    images = jitter_pixels(images, options, draws);
  images = normalize(images, options);
  if (options.jitter == "normalized" && jitters(options))
    images = jitter_normalized(images, options, draws);
  return images;
}

}  // namespace remcaps
