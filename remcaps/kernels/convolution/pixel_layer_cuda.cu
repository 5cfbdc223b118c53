#include "remcaps/kernels/convolution/pixel_layer.h"
#include "remcaps/kernels/convolution/window_dims_cuda.h"
#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/cuda/map_numbers.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kRowThreads = 256;

// One thread writes eight numbers of a row.
template <typename T>
__global__ void windows_kernel(WindowDims dims, int eights, int64_t count,
                               const float* __restrict__ images, T* __restrict__ rows) {
  const int64_t thread = int64_t(blockIdx.x) * kRowThreads + threadIdx.x;
  if (thread >= count) return;
  const auto window = static_cast<int>(thread / eights);
  const int first = static_cast<int>(thread % eights) * 8;
  const int place = window % (dims.rows * dims.columns);
  const int image = window / (dims.rows * dims.columns);
  const int top = place / dims.columns * dims.stride_y - dims.padding_y;
  const int left = place % dims.columns * dims.stride_x - dims.padding_x;
  const int plane = dims.kernel_height * dims.kernel_width;
  const float* pixels = images + int64_t(image) * dims.channels * dims.height * dims.width;
  Eight eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = first + i, channel = at / plane;
    const int y = top + at % plane / dims.kernel_width, x = left + at % dims.kernel_width;
    const bool inside =
        channel < dims.channels && y >= 0 && y < dims.height && x >= 0 && x < dims.width;
    eight.x[i] = inside ? pixels[(channel * dims.height + y) * dims.width + x] : 0.0F;
  }
  store8(rows + thread * 8, eight);
}

}  // namespace

void windows_to_rows(const ConvolutionShape& shape, int64_t length, const float* images,
                     MapType type, void* rows, cudaStream_t stream) {
  const WindowDims dims(shape);
  const int eights = static_cast<int>(length / 8);
  const int64_t count = shape.places() * eights;
  if (count == 0) return;
  const int blocks = blocks_for(count, kRowThreads);
  if (type == MapType::kFloat32)
    windows_kernel<<<blocks, kRowThreads, 0, stream>>>(dims, eights, count, images,
                                                       static_cast<float*>(rows));
  else
    windows_kernel<<<blocks, kRowThreads, 0, stream>>>(dims, eights, count, images,
                                                       static_cast<__nv_bfloat16*>(rows));
  check_launch("windows_to_rows");
}

}  // namespace remcaps::kernels::cuda
