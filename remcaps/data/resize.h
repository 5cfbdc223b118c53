// Bilinear resizing of bytes, bit for bit as PIL's Image.resize(..., BILINEAR).
#pragma once

#include <torch/types.h>

namespace remcaps {

/// uint8 [..., H, W] to uint8 [..., height, width] on the same device. The triangle filter widens
/// when it shrinks an image (antialias); columns first, then rows, each pass rounded to bytes with
/// 22-bit weights. The arithmetic is in integers: every device gives the same bytes. Without
/// `antialias` the filter keeps its width, as in TensorFlow's image.resize.
torch::Tensor resize_images(const torch::Tensor& images, int64_t height, int64_t width,
                            bool antialias = true);

/// The same for one picture [C, H, W] on the CPU, on the calling thread alone: decoders run one
/// picture a thread.
torch::Tensor resize_picture(const torch::Tensor& picture, int64_t height, int64_t width);

}  // namespace remcaps
