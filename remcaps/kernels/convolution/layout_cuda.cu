#include <algorithm>
#include <type_traits>

#include "remcaps/kernels/convolution/layout.h"
#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/cuda/map_numbers.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;
constexpr int64_t kMostBlocks = 65535;  // in the second and third dimension of a grid

// A tile goes through shared memory, so that both reads and writes run along rows.
template <typename In, typename Out>
__global__ void transpose_kernel(Matrices shape, const In* __restrict__ in, Out* __restrict__ out) {
  __shared__ float tile[kTile][kTile + 1];  // one more: no two rows begin in the same bank
  const int64_t size = shape.rows * shape.columns;
  for (int64_t n = blockIdx.z; n < shape.count; n += gridDim.z) {
    for (int64_t first_row = int64_t(blockIdx.y) * kTile; first_row < shape.rows;
         first_row += int64_t(gridDim.y) * kTile) {
      const int64_t first_column = int64_t(blockIdx.x) * kTile;
      for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int64_t row = first_row + y, column = first_column + threadIdx.x;
        if (row < shape.rows && column < shape.columns)
          tile[y][threadIdx.x] = to_float(in[n * size + row * shape.columns + column]);
      }
      __syncthreads();
      for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int64_t column = first_column + y, row = first_row + threadIdx.x;
        if (row < shape.rows && column < shape.columns)
          put(&out[n * size + column * shape.rows + row], tile[threadIdx.x][y]);
      }
      __syncthreads();
    }
  }
}

// A filter has few places. A block takes kSlab channels with all their places: they are one piece
// of the float32 side, which is read or written in one piece.
constexpr int kSlab = 64, kSlabThreads = 256, kMostPlaces = 128;

bool fits_a_slab(int64_t channels, int64_t places) {
  return channels % kSlab == 0 && places <= kMostPlaces;
}

// Where the channels of a place of a filter begin on the turned side.
struct PlaceOrder {
  int row_length, phases;
  int64_t filter_stride, row_stride, phase_stride, place_stride;

  static PlaceOrder channels_last(int64_t channels, int64_t places) {
    return {.row_length = static_cast<int>(places),
            .phases = 1,
            .filter_stride = places * channels,
            .row_stride = 0,
            .phase_stride = 0,
            .place_stride = channels};
  }
  static PlaceOrder by_phase(const Filters& shape, int64_t phases) {
    const int64_t row_stride = shape.count * shape.width * shape.channels;
    return {.row_length = static_cast<int>(shape.width),
            .phases = static_cast<int>(phases),
            .filter_stride = shape.width * shape.channels,
            .row_stride = row_stride,
            .phase_stride = (shape.height + phases - 1) / phases * row_stride,
            .place_stride = shape.channels};
  }
  __device__ int64_t at(int filter, int place) const {
    const int row = place / row_length;
    return filter * filter_stride + row / phases * row_stride + row % phases * phase_stride +
           place % row_length * place_stride;
  }
};

__device__ inline float2 floats_of(__nv_bfloat162 pair) {
  return __bfloat1622float2(pair);
}
__device__ inline float2 floats_of(float2 pair) {
  return pair;
}
__device__ inline void put_pair(__nv_bfloat162& to, float one, float other) {
  to = __floats2bfloat162_rn(one, other);
}
__device__ inline void put_pair(float2& to, float one, float other) {
  to = {one, other};
}

// `plain` is [count, channels, places] float32; `turned` has the channels of a place side by side,
// as pairs of either type. Copies the constant one into the other.
template <typename Plain, typename Turned>
__global__ void slab_kernel(int channels, int places, PlaceOrder order, Plain* __restrict__ plain,
                            Turned* __restrict__ turned) {
  extern __shared__ float slab[];  // [kSlab][places | 1]: an odd length spreads rows over the banks
  const int pitch = places | 1, pairs = kSlab / 2;
  Plain* piece = plain + (int64_t(blockIdx.y) * channels + int64_t(blockIdx.x) * kSlab) * places;
  // body(slab's number, that of the plain side), and body(slab's two numbers, their pair).
  const auto with_plain = [&](const auto& body) {
    for (int at = threadIdx.x; at < kSlab * places; at += kSlabThreads)
      body(slab[at / places * pitch + at % places], piece[at]);
  };
  const auto with_turned = [&](const auto& body) {
    for (int at = threadIdx.x; at < places * pairs; at += kSlabThreads) {
      const int place = at / pairs, pair = at % pairs;
      body(slab[2 * pair * pitch + place], slab[(2 * pair + 1) * pitch + place],
           turned[(order.at(blockIdx.y, place) + blockIdx.x * kSlab) / 2 + pair]);
    }
  };
  if constexpr (std::is_const_v<Plain>) {
    with_plain([](float& kept, float given) { kept = given; });
    __syncthreads();
    with_turned([](float one, float other, Turned& made) { put_pair(made, one, other); });
  } else {
    with_turned([](float& one, float& other, Turned& given) {
      const float2 both = floats_of(given);
      one = both.x;
      other = both.y;
    });
    __syncthreads();
    with_plain([](float kept, float& made) { made = kept; });
  }
}

template <typename Plain, typename Turned>
void turn_slabs(int64_t count, int64_t channels, int64_t places, const PlaceOrder& order,
                Plain* plain, Turned* turned, cudaStream_t stream) {
  if (count == 0) return;
  const dim3 blocks(static_cast<unsigned>(channels / kSlab), static_cast<unsigned>(count));
  const size_t bytes = kSlab * (places | 1) * sizeof(float);
  slab_kernel<<<blocks, kSlabThreads, bytes, stream>>>(
      static_cast<int>(channels), static_cast<int>(places), order, plain, turned);
  check_launch("turn_slabs");
}

template <typename In, typename Out>
void transpose(const Matrices& shape, const In* in, Out* out, cudaStream_t stream) {
  if (shape.count * shape.rows * shape.columns == 0) return;
  const dim3 blocks(
      blocks_for(shape.columns, kTile),
      static_cast<unsigned>(std::min<int64_t>(blocks_for(shape.rows, kTile), kMostBlocks)),
      static_cast<unsigned>(std::min<int64_t>(shape.count, kMostBlocks)));
  transpose_kernel<<<blocks, dim3(kTile, kTileRows), 0, stream>>>(shape, in, out);
  check_launch("transpose");
}

}  // namespace

void transpose_to_bfloat16(const Matrices& shape, const float* in, void* out, cudaStream_t stream) {
  if (fits_a_slab(shape.rows, shape.columns) && shape.count <= kMostBlocks)
    return turn_slabs(shape.count, shape.rows, shape.columns,
                      PlaceOrder::channels_last(shape.rows, shape.columns), in,
                      static_cast<__nv_bfloat162*>(out), stream);
  transpose(shape, in, static_cast<__nv_bfloat16*>(out), stream);
}

void transpose_to_float32(const Matrices& shape, MapType type, const void* in, float* out,
                          cudaStream_t stream) {
  if (fits_a_slab(shape.columns, shape.rows) && shape.count <= kMostBlocks) {
    const PlaceOrder order = PlaceOrder::channels_last(shape.columns, shape.rows);
    if (type == MapType::kFloat32)
      return turn_slabs(shape.count, shape.columns, shape.rows, order, out,
                        static_cast<const float2*>(in), stream);
    return turn_slabs(shape.count, shape.columns, shape.rows, order, out,
                      static_cast<const __nv_bfloat162*>(in), stream);
  }
  if (type == MapType::kFloat32)
    return transpose(shape, static_cast<const float*>(in), out, stream);
  transpose(shape, static_cast<const __nv_bfloat16*>(in), out, stream);
}

bool has_filters_by_phase(const Filters& shape) {
  return fits_a_slab(shape.channels, shape.height * shape.width) && shape.count <= kMostBlocks;
}

void filters_by_phase(const Filters& shape, int64_t phases, const float* in, MapType type,
                      void* out, cudaStream_t stream) {
  const PlaceOrder order = PlaceOrder::by_phase(shape, phases);
  const int64_t places = shape.height * shape.width;
  if (type == MapType::kFloat32)
    return turn_slabs(shape.count, shape.channels, places, order, in, static_cast<float2*>(out),
                      stream);
  turn_slabs(shape.count, shape.channels, places, order, in, static_cast<__nv_bfloat162*>(out),
             stream);
}

}  // namespace remcaps::kernels::cuda
