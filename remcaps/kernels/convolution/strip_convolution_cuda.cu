#include "remcaps/kernels/convolution/strip_convolution.h"
#include "remcaps/kernels/convolution/window_dims_cuda.h"
#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/cuda/map_numbers.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kThreads = 256;
using Piece = uint4;  // 16 bytes of either type

int64_t bytes_of(MapType type) {
  return type == MapType::kFloat32 ? sizeof(float) : sizeof(__nv_bfloat16);
}

// A thread takes the channels of a pixel in `units` pieces.
struct StripDims : WindowDims {
  int phase, count, units;

  StripDims(const ConvolutionShape& shape, int64_t phase, int64_t count, int64_t units)
      : WindowDims(shape),
        phase(static_cast<int>(phase)),
        count(static_cast<int>(count)),
        units(static_cast<int>(units)) {}
  __device__ int row_of(int strip) const { return strip * stride_y + phase - padding_y; }
};

// One block per strip of an image, whose row is read from memory once.
__global__ void cut_kernel(StripDims dims, const Piece* __restrict__ map,
                           Piece* __restrict__ strips) {
  const int strip = blockIdx.x / dims.batch, image = blockIdx.x % dims.batch;
  const int y = dims.row_of(strip), window = dims.kernel_width * dims.units;
  const bool inside = y >= 0 && y < dims.height;
  const Piece* row = map + (int64_t(image) * dims.height + y) * dims.width * dims.units;
  Piece* out = strips + int64_t(blockIdx.x) * dims.columns * window;
  for (int at = threadIdx.x; at < dims.columns * window; at += kThreads) {
    const int left = at / window * dims.stride_x - dims.padding_x, pixel = at % window / dims.units;
    const int x = left + pixel;
    out[at] = inside && x >= 0 && x < dims.width ? row[x * dims.units + at % dims.units] : Piece{};
  }
}

// One block per row of an image; a thread sums eight channels of a pixel.
template <typename T>
__global__ void fold_kernel(StripDims dims, const T* __restrict__ strips, T* __restrict__ map) {
  const int strip = blockIdx.x / dims.batch, image = blockIdx.x % dims.batch;
  const int y = dims.row_of(strip), channels = dims.channels;
  if (y < 0 || y >= dims.height) return;
  const T* given = strips + (int64_t(dims.count - 1 - strip) * dims.batch + image) * dims.columns *
                                dims.kernel_width * channels;
  T* row = map + (int64_t(image) * dims.height + y) * dims.width * channels;
  for (int at = threadIdx.x; at < dims.width * dims.units; at += kThreads) {
    const int x = at / dims.units + dims.padding_x, channel = at % dims.units * 8;
    Eight sum = {};
    if (strip < dims.count) {
      for (int pixel = x % dims.stride_x; pixel < dims.kernel_width && pixel <= x;
           pixel += dims.stride_x) {
        const int column = (x - pixel) / dims.stride_x;
        if (column >= dims.columns) continue;
        const Eight part =
            load8(given + (int64_t(column) * dims.kernel_width + pixel) * channels + channel);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum.x[i] += part.x[i];
      }
    }
    store8(row + at * 8, sum);
  }
}

// One thread per eight channels of a place.
template <typename T>
__global__ void sum_kernel(int batch, int rows, int columns, int eights, int count,
                           const float* __restrict__ parts, const float* __restrict__ bias,
                           T* __restrict__ map) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t places = int64_t(batch) * rows * columns;
  if (thread >= places * eights) return;
  const int channel = static_cast<int>(thread % eights) * 8;
  const auto place = static_cast<int>(thread / eights);
  const int column = place % columns, row = place / columns % rows, image = place / columns / rows;
  const float* part =
      parts + ((int64_t(row) * batch + image) * columns + column) * eights * 8 + channel;
  Eight sum = {};
  if (bias != nullptr) sum = load8(bias + channel);
#pragma unroll 3
  for (int i = 0; i < count; ++i) {
    const Eight more = load8(part + i * places * eights * 8);
#pragma unroll
    for (int c = 0; c < 8; ++c) sum.x[c] += more.x[c];
  }
  store8(map + thread * 8, sum);
}

// One thread per 16 bytes.
__global__ void spread_kernel(int rows, int columns, int pieces, int margin, int64_t total,
                              const Piece* __restrict__ map, Piece* __restrict__ spread) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= total) return;
  const int length = (rows + 2 * margin) * pieces;
  const auto line = static_cast<int>(thread / length);  // of an image's column
  const int at = static_cast<int>(thread % length);
  const int row = margin + rows - 1 - at / pieces, image = line / columns, column = line % columns;
  spread[thread] =
      row >= 0 && row < rows
          ? map[((int64_t(image) * rows + row) * columns + column) * pieces + at % pieces]
          : Piece{};
}

}  // namespace

void cut_strips(const ConvolutionShape& shape, int64_t phase, int64_t count, MapType type,
                const void* map, void* strips, cudaStream_t stream) {
  if (count * shape.batch == 0) return;
  const int64_t pieces = shape.channels * bytes_of(type) / static_cast<int64_t>(sizeof(Piece));
  cut_kernel<<<static_cast<unsigned>(count * shape.batch), kThreads, 0, stream>>>(
      StripDims(shape, phase, count, pieces), static_cast<const Piece*>(map),
      static_cast<Piece*>(strips));
  check_launch("cut_strips");
}

void fold_strips(const ConvolutionShape& shape, int64_t phase, int64_t count, MapType type,
                 const void* strips, void* map, cudaStream_t stream) {
  const int64_t rows = blocks_for(shape.height + shape.padding_y - phase, shape.stride_y);
  if (rows * shape.batch == 0) return;
  const StripDims dims(shape, phase, count, shape.channels / 8);
  const auto blocks = static_cast<unsigned>(rows * shape.batch);
  if (type == MapType::kFloat32)
    fold_kernel<<<blocks, kThreads, 0, stream>>>(dims, static_cast<const float*>(strips),
                                                 static_cast<float*>(map));
  else
    fold_kernel<<<blocks, kThreads, 0, stream>>>(dims, static_cast<const __nv_bfloat16*>(strips),
                                                 static_cast<__nv_bfloat16*>(map));
  check_launch("fold_strips");
}

void sum_parts(const RowsShape& shape, int64_t count, const float* parts, const float* bias,
               MapType type, void* map, cudaStream_t stream) {
  const auto narrow = [](int64_t number) { return static_cast<int>(number); };
  const int64_t threads = shape.batch * shape.rows * shape.columns * shape.channels / 8;
  if (threads == 0) return;
  const auto launch = [&](auto* out) {
    sum_kernel<<<blocks_for(threads, kThreads), kThreads, 0, stream>>>(
        narrow(shape.batch), narrow(shape.rows), narrow(shape.columns), narrow(shape.channels / 8),
        narrow(count), parts, bias, out);
  };
  if (type == MapType::kFloat32)
    launch(static_cast<float*>(map));
  else
    launch(static_cast<__nv_bfloat16*>(map));
  check_launch("sum_parts");
}

void spread_rows(const RowsShape& shape, int64_t margin, MapType type, const void* map,
                 void* spread, cudaStream_t stream) {
  const auto narrow = [](int64_t number) { return static_cast<int>(number); };
  const int64_t pieces = shape.channels * bytes_of(type) / static_cast<int64_t>(sizeof(Piece));
  const int64_t total = shape.batch * shape.columns * (shape.rows + 2 * margin) * pieces;
  if (total == 0) return;
  spread_kernel<<<blocks_for(total, kThreads), kThreads, 0, stream>>>(
      narrow(shape.rows), narrow(shape.columns), narrow(pieces), narrow(margin), total,
      static_cast<const Piece*>(map), static_cast<Piece*>(spread));
  check_launch("spread_rows");
}

}  // namespace remcaps::kernels::cuda
