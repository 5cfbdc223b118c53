// Pictures as bytes: images back from normalised tensors, overlays, mosaics, PNG.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace remcaps {

/// A picture is uint8 [H, W, 3] on the CPU.
using Picture = torch::Tensor;

/// One normalised image [C, H, W] (mean and std one number or one per channel) as a picture: grey
/// if C is 1, colour if it is 3, else (smallNORB's stereo pair) the first channel.
Picture to_picture(const torch::Tensor& image, const std::vector<double>& mean,
                   const std::vector<double>& std);

/// Bytes [C, H, W] as a picture, channels as above.
Picture to_picture(const torch::Tensor& bytes);

/// A map [H, W] of nonnegative numbers in the colours of map_colour(), from its lowest value to its
/// highest. Capsules of the background are active too, so a map seldom comes near zero; only its
/// differences are of interest. A map that varies by less than 2 % stays dark.
Picture heat_picture(const torch::Tensor& map);

/// The map over the greyed picture. Both have the same size. A strong saliency hides the picture.
Picture overlay(const Picture& picture, const torch::Tensor& map);

/// A map [H, W] of signed numbers as a picture. Positive numbers are orange to yellow, negative
/// ones are blue, 0 is dark. Both use one scale, which the largest number sets.
Picture balance_picture(const torch::Tensor& map);

/// Such a map over the greyed picture; 0 leaves the picture as it is.
Picture balance_overlay(const Picture& picture, const torch::Tensor& map);

/// Every pixel `factor` times as wide and high.
Picture enlarge(const Picture& picture, int64_t factor);
/// The factor that brings the shorter side to at least `side` pixels.
int64_t enlargement(const Picture& picture, int64_t side);

/// Pictures of one size side by side and below each other, `gap` pixels of white between them. Rows
/// may differ in length.
Picture mosaic(const std::vector<std::vector<Picture>>& rows, int64_t gap = 2);

/// The bytes of a PNG file.
std::string encode_png(const Picture& picture);
/// Writes it atomically.
void write_png(const std::filesystem::path& path, const Picture& picture);
/// "data:image/png;base64,..." for an SVG or HTML file.
std::string png_data_uri(const Picture& picture);

}  // namespace remcaps
