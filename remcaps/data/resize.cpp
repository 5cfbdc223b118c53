#include "remcaps/data/resize.h"

#include "remcaps/base/error.h"
#include "remcaps/kernels/pictures/resize.h"

namespace remcaps {
namespace {

// One pass along `dim` (-1 or -2), as tensor operations.
torch::Tensor resize_along(const torch::Tensor& images, int64_t dim, int64_t out, bool antialias) {
  const int64_t in = images.size(dim);
  if (in == out) return images;
  const kernels::ResizeTaps taps = kernels::make_resize_taps(in, out, antialias);
  const torch::Tensor first = torch::tensor(taps.first, torch::kInt64).to(images.device());
  const torch::Tensor weights =
      torch::tensor(taps.weight, torch::kInt32).view({taps.count, out}).to(images.device());
  torch::Tensor sum;
  for (int64_t k = 0; k < taps.count; ++k) {
    // Where a position has fewer taps the weight is zero: any place inside will do.
    const torch::Tensor place = (first + k).clamp_max(in - 1);
    const torch::Tensor weight = dim == -2 ? weights[k].unsqueeze(-1) : weights[k];
    torch::Tensor term = images.index_select(dim, place).to(torch::kInt32).mul_(weight);
    sum = sum.defined() ? sum.add_(term) : term.add_(kernels::kResizeHalf);
  }
  return sum.bitwise_right_shift(kernels::kResizeBits).clamp_(0, 255).to(torch::kUInt8);
}

}  // namespace

torch::Tensor resize_images(const torch::Tensor& images, int64_t height, int64_t width,
                            bool antialias) {
  check(images.scalar_type() == torch::kUInt8 && images.dim() >= 2,
        "resize: a tensor of {} dimensions and type {}; expected bytes of [..., H, W]",
        images.dim(), torch::toString(images.scalar_type()));
  check(height > 0 && width > 0, "resize: asked for {} x {} pixels", height, width);
  return resize_along(resize_along(images, -1, width, antialias), -2, height, antialias);
}

torch::Tensor resize_picture(const torch::Tensor& picture, int64_t height, int64_t width) {
  check(picture.scalar_type() == torch::kUInt8 && picture.dim() == 3 && picture.is_contiguous(),
        "resize: a tensor of {} dimensions and type {}; expected contiguous bytes of [C, H, W]",
        picture.dim(), torch::toString(picture.scalar_type()));
  torch::Tensor result = torch::empty({picture.size(0), height, width}, torch::kUInt8);
  kernels::cpu::resize_picture(picture.data_ptr<uint8_t>(), picture.size(0), picture.size(1),
                               picture.size(2), height, width, result.data_ptr<uint8_t>());
  return result;
}

}  // namespace remcaps
