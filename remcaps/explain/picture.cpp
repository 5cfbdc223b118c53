#include "remcaps/explain/picture.h"

#include <fmt/ranges.h>
#include <png.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/text.h"
#include "remcaps/explain/colour_map.h"

namespace remcaps {

using torch::Tensor;

namespace {

void append_bytes(png_structp png, png_bytep bytes, png_size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))
      ->append(reinterpret_cast<const char*>(bytes), count);
}

[[noreturn]] void throw_png_error(png_structp, png_const_charp message) {
  fail("PNG encoder: {}", message);
}

void check_picture(const Picture& picture) {
  check(picture.dim() == 3 && picture.size(2) == 3 && picture.scalar_type() == torch::kByte,
        "a picture of [{}]; expected bytes [H, W, 3]", fmt::join(picture.sizes(), ", "));
}

constexpr double kFlat = 0.02;  // of its maximum: a map must vary by this much to be seen

Tensor normalised(const Tensor& map) {
  const Tensor values = map.detach().to(torch::kCPU, torch::kFloat);
  const double low = values.min().item<double>(), high = values.max().item<double>();
  return ((values - low) / std::max({high - low, kFlat * high, 1e-12})).clamp(0, 1);
}

// A signed map, -1 to 1.
Tensor balanced(const Tensor& map) {
  const Tensor values = map.detach().to(torch::kCPU, torch::kFloat);
  return values / values.abs().max().clamp_min(1e-12);
}

// Signed numbers, -1 to 1, as colours: float32 [H, W, 3] in 0..255.
Tensor balance_colours(const Tensor& values) {
  const auto colour = [](float red, float green, float blue) {
    return torch::tensor({red, green, blue}, torch::kFloat);
  };
  const auto rising = [&](const Tensor& strength, const Tensor& middle, const Tensor& most) {
    const Tensor low = (2 * strength).clamp(0, 1), high = (2 * strength - 1).clamp(0, 1);
    return (colour(22, 20, 28) * (1 - low) + middle * low) * (1 - high) + most * high;
  };
  const Tensor strength = values.abs().unsqueeze(2);
  return torch::where(values.unsqueeze(2).ge(0),
                      rising(strength, colour(216, 92, 30), colour(255, 222, 128)),
                      rising(strength, colour(36, 96, 190), colour(150, 214, 255)));
}

Tensor greyed(const Picture& picture) {
  return picture.to(torch::kFloat).mean(2, true).expand({-1, -1, 3});
}

void check_over(const Picture& picture, const Tensor& map) {
  check_picture(picture);
  check(map.dim() == 2 && map.size(0) == picture.size(0) && map.size(1) == picture.size(1),
        "a map of [{}] over a picture of [{}]", fmt::join(map.sizes(), ", "),
        fmt::join(picture.sizes(), ", "));
}

// [C, H, W] with one or three channels -> [H, W, 3].
Picture three_channels(const Tensor& bytes) {
  const Tensor shown = bytes.size(0) == 3 ? bytes : bytes.slice(0, 0, 1).expand({3, -1, -1});
  return shown.permute({1, 2, 0}).contiguous();
}

}  // namespace

Picture to_picture(const Tensor& bytes) {
  return three_channels(bytes.detach().cpu());
}

Picture to_picture(const Tensor& image, const std::vector<double>& mean,
                   const std::vector<double>& std) {
  const auto per_channel = [](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat).view({-1, 1, 1});
  };
  const Tensor pixels =
      image.detach().to(torch::kCPU, torch::kFloat) * per_channel(std) + per_channel(mean);
  return three_channels((pixels.clamp(0, 1) * 255).round().to(torch::kByte));
}

Picture heat_picture(const Tensor& map) {
  return map_colours(normalised(map));
}

Picture overlay(const Picture& picture, const Tensor& map) {
  check_over(picture, map);
  const Tensor strength = normalised(map);  // [H, W]
  const Tensor grey = greyed(picture);      // [H, W, 3]
  const Tensor colour = map_colours(strength).to(torch::kFloat);
  const Tensor alpha = (0.30 + 0.50 * strength).unsqueeze(2);
  return (grey * (1 - alpha) + colour * alpha).round().to(torch::kByte);
}

Picture balance_picture(const Tensor& map) {
  return balance_colours(balanced(map)).round().to(torch::kByte);
}

Picture balance_overlay(const Picture& picture, const Tensor& map) {
  check_over(picture, map);
  const Tensor values = balanced(map);
  const Tensor alpha = (0.75 * values.abs()).unsqueeze(2);
  return (greyed(picture) * (1 - alpha) + balance_colours(values) * alpha).round().to(torch::kByte);
}

Picture enlarge(const Picture& picture, int64_t factor) {
  check_picture(picture);
  return picture.repeat_interleave(factor, 0).repeat_interleave(factor, 1);
}

int64_t enlargement(const Picture& picture, int64_t side) {
  const int64_t shorter = std::min(picture.size(0), picture.size(1));
  return std::max<int64_t>(1, (side + shorter - 1) / shorter);
}

Picture mosaic(const std::vector<std::vector<Picture>>& rows, int64_t gap) {
  check(!rows.empty() && !rows[0].empty(), "a mosaic of no pictures");
  const int64_t height = rows[0][0].size(0), width = rows[0][0].size(1);
  size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  const int64_t row_count = static_cast<int64_t>(rows.size());
  const int64_t column_count = static_cast<int64_t>(columns);
  Picture result = torch::full(
      {row_count * (height + gap) - gap, column_count * (width + gap) - gap, 3}, 255, torch::kByte);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const Picture& tile = rows[r][c];
      check_picture(tile);
      check(tile.size(0) == height && tile.size(1) == width,
            "a mosaic of {}x{} pictures with one of {}x{}", height, width, tile.size(0),
            tile.size(1));
      result.narrow(0, static_cast<int64_t>(r) * (height + gap), height)
          .narrow(1, static_cast<int64_t>(c) * (width + gap), width)
          .copy_(tile);
    }
  }
  return result;
}

std::string encode_png(const Picture& picture) {
  check_picture(picture);
  const Picture bytes = picture.cpu().contiguous();
  const auto height = static_cast<png_uint_32>(bytes.size(0));
  const auto width = static_cast<png_uint_32>(bytes.size(1));
  std::string out;
  // The error callback throws, so libpng's longjmp is never used; the guard frees what it made.
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, throw_png_error, nullptr);
  check(png != nullptr, "PNG encoder: out of memory");
  png_infop info = nullptr;
  const std::unique_ptr<png_struct, std::function<void(png_structp)>> guard(
      png, [&info](png_structp held) { png_destroy_write_struct(&held, &info); });
  info = png_create_info_struct(png);
  check(info != nullptr, "PNG encoder: out of memory");
  png_set_write_fn(png, &out, append_bytes, nullptr);
  png_set_IHDR(png, info, width, height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (png_uint_32 row = 0; row < height; ++row)
    png_write_row(png, bytes.data_ptr<uint8_t>() + size_t{row} * width * 3);
  png_write_end(png, nullptr);
  return out;
}

void write_png(const std::filesystem::path& path, const Picture& picture) {
  write_atomically(path, encode_png(picture));
}

std::string png_data_uri(const Picture& picture) {
  return "data:image/png;base64," + base64(encode_png(picture));
}

}  // namespace remcaps
