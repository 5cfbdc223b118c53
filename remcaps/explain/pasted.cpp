#include "remcaps/explain/pasted.h"

#include "remcaps/base/error.h"
#include "remcaps/data/formats/prepared.h"
#include "remcaps/torch/random.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps {

using torch::Tensor;

namespace {

constexpr int64_t kChunk = 4096;
constexpr int kBlack = 8;  // what JPEG-like noise may leave of a black background

// The random numbers of one image: `draw` numbers the decisions.
class Dice {
 public:
  Dice(const PasteOptions& options, Tensor samples)
      : options_(options), samples_(std::move(samples)) {}

  /// Uniform in 0..below-1, int64 [B].
  Tensor below(int64_t below) {
    const Tensor uniform =
        random_uniform(options_.seed, RandomStream::kExplain, options_.split, samples_, draw_++);
    return (uniform * below).to(torch::kLong).clamp_max(below - 1);
  }

 private:
  const PasteOptions& options_;
  Tensor samples_;
  uint32_t draw_ = 0;
};

// Flat pixel places of a height x width window at (row, column) of maps `stride` wide: [B, h * w].
Tensor window(const Tensor& row, const Tensor& column, int64_t height, int64_t width,
              int64_t stride) {
  const Tensor y = row.view({-1, 1, 1}) + torch::arange(height).view({1, -1, 1});
  const Tensor x = column.view({-1, 1, 1}) + torch::arange(width).view({1, 1, -1});
  return (y * stride + x).flatten(1);
}

// places [B, n] of every channel: [B, C, n].
Tensor for_channels(const Tensor& places, int64_t channels) {
  return places.unsqueeze(1).expand({-1, channels, -1});
}

// Objects with their holes filled: a dark print on a shirt is part of it. A hole has solid pixels
// on all four sides.
Tensor silhouettes(const Tensor& solid) {  // bool [B, h, w]
  const auto between = [&](int64_t dim) {
    const Tensor before = solid.cumsum(dim).gt(0);
    const Tensor behind = solid.flip({dim}).cumsum(dim).gt(0).flip({dim});
    return before.logical_and(behind);
  };
  return between(1).logical_and(between(2));
}

}  // namespace

Tensor object_masks(const Tensor& images) {
  return silhouettes(images.amax(1).gt(kBlack));
}

PastedImages paste_on_clutter(const Dataset& objects, const PasteOptions& options) {
  const int64_t count = objects.size();
  check(count > 0, "no objects to paste");
  const int64_t channels = objects.images.size(1), height = objects.images.size(2),
                width = objects.images.size(3), side = options.side;
  const int64_t piece = options.fragment_side;
  check(side >= height && side >= width, "a canvas of {} pixels for objects of {}x{}", side, height,
        width);
  check(piece >= 1 && piece <= height && piece <= width, "fragments of {} pixels from {}x{} images",
        piece, height, width);

  const Tensor flat = objects.images.flatten(2);  // [N, C, h * w]
  PastedImages result;
  result.dataset.labels = objects.labels;
  result.dataset.images = torch::empty({count, channels, side, side}, torch::kByte);
  result.masks = torch::empty({count, side, side}, torch::kByte);
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = std::min(kChunk, count - begin);
    Dice dice(options, torch::arange(begin, begin + size));
    Tensor canvas = torch::zeros({size, channels, side * side}, torch::kByte);
    for (int64_t f = 0; f < options.fragments; ++f) {
      const Tensor other = flat.index_select(0, dice.below(count));
      const Tensor from_row = dice.below(height - piece + 1),
                   from_column = dice.below(width - piece + 1);
      const Tensor from =
          for_channels(window(from_row, from_column, piece, piece, width), channels);
      const Tensor to_row = dice.below(side - piece + 1), to_column = dice.below(side - piece + 1);
      const Tensor to = for_channels(window(to_row, to_column, piece, piece, side), channels);
      canvas.scatter_(2, to, torch::maximum(other.gather(2, from), canvas.gather(2, to)));
    }
    const Tensor object = flat.slice(0, begin, begin + size);  // [B, C, h * w]
    const Tensor solid =
        object_masks(object.view({size, channels, height, width})).view({size, 1, -1});
    const Tensor row = dice.below(side - height + 1), column = dice.below(side - width + 1);
    const Tensor place = window(row, column, height, width, side);
    const Tensor to = for_channels(place, channels);
    canvas.scatter_(2, to, torch::where(solid, object, canvas.gather(2, to)));
    Tensor mask = torch::zeros({size, side * side}, torch::kByte);
    mask.scatter_(1, place, solid.squeeze(1).to(torch::kByte));
    result.dataset.images.slice(0, begin, begin + size)
        .copy_(canvas.view({size, channels, side, side}));
    result.masks.slice(0, begin, begin + size).copy_(mask.view({size, side, side}));
  }
  return result;
}

void write_pasted(const DataSplits& objects, const PasteOptions& options,
                  const std::filesystem::path& file) {
  SourceData source;
  source.name = kPictureFolder;  // recipes give this file as their dataset.folder
  source.class_names = objects.class_names;
  PasteOptions of_test = options;
  of_test.split = options.split + 1;
  PastedImages test = paste_on_clutter(objects.test, of_test);
  source.train = paste_on_clutter(objects.train, options).dataset;
  source.test = std::move(test.dataset);
  write_prepared(file, source);
  save_safetensors(masks_file(file), {{"test", test.masks}}, {{"format", "remcaps masks 1"}});
}

std::filesystem::path masks_file(const std::filesystem::path& file) {
  std::filesystem::path masks = file;
  return masks.replace_extension(".masks.safetensors");
}

Tensor load_masks(const std::filesystem::path& file, const std::string& split) {
  check(std::filesystem::is_regular_file(file),
        "{}: no such masks file (remcaps paste writes it beside the images)", file.string());
  const TensorFile masks(file);
  check(masks.contains(split), "{}: no masks of the {} split (only test images have them)",
        file.string(), split);
  const Tensor loaded = masks.load(split);
  check(loaded.scalar_type() == torch::kByte && loaded.dim() == 3,
        "{}: masks of [{}]; expected bytes [N, H, W]", file.string(),
        fmt::join(loaded.sizes(), ", "));
  return loaded;
}

}  // namespace remcaps
