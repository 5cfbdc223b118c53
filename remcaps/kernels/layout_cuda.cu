#include <algorithm>
#include <type_traits>

#include "remcaps/kernels/cuda_launch.cuh"
#include "remcaps/kernels/layout_kernels.h"
#include "remcaps/kernels/map_numbers.cuh"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;
constexpr int64_t kMostBlocks = 65535;  // of the grid's second and third dimension

// A tile goes through shared memory, so that reading and writing both run along rows.
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

// A filter's weights have few places: a block takes kSlab channels of all of them at once, so that
// the float32 side, which lies in one piece, is read or written in one piece.
constexpr int kSlab = 64, kSlabThreads = 256, kMostPlaces = 128;

bool fits_a_slab(int64_t channels, int64_t places) {
  return channels % kSlab == 0 && places <= kMostPlaces;
}

// [count, channels, places] float32 (wide) and [count, places, channels] bfloat16 (narrow), one
// into the other.
template <typename Wide, typename Narrow>
__global__ void slab_kernel(int channels, int places, Wide* __restrict__ wide,
                            Narrow* __restrict__ narrow) {
  extern __shared__ float slab[];  // [kSlab][places | 1]: an odd length spreads rows over the banks
  const int pitch = places | 1, pairs = kSlab / 2;
  Wide* piece = wide + (int64_t(blockIdx.y) * channels + int64_t(blockIdx.x) * kSlab) * places;
  Narrow* across =
      narrow + (int64_t(blockIdx.y) * places * channels + int64_t(blockIdx.x) * kSlab) / 2;
  // body(slab's number, that of the wide side), and body(slab's two numbers, their pair).
  const auto with_wide = [&](const auto& body) {
    for (int at = threadIdx.x; at < kSlab * places; at += kSlabThreads)
      body(slab[at / places * pitch + at % places], piece[at]);
  };
  const auto with_narrow = [&](const auto& body) {
    for (int at = threadIdx.x; at < places * pairs; at += kSlabThreads) {
      const int place = at / pairs, pair = at % pairs;
      body(slab[2 * pair * pitch + place], slab[(2 * pair + 1) * pitch + place],
           across[int64_t(place) * (channels / 2) + pair]);
    }
  };
  if constexpr (std::is_const_v<Wide>) {
    with_wide([](float& kept, float given) { kept = given; });
    __syncthreads();
    with_narrow([](float one, float other, __nv_bfloat162& made) {
      made = __floats2bfloat162_rn(one, other);
    });
  } else {
    with_narrow([](float& one, float& other, __nv_bfloat162 given) {
      const float2 both = __bfloat1622float2(given);
      one = both.x;
      other = both.y;
    });
    __syncthreads();
    with_wide([](float kept, float& made) { made = kept; });
  }
}

template <typename Wide, typename Narrow>
void transpose_slabs(int64_t count, int64_t channels, int64_t places, Wide* wide, Narrow* narrow,
                     cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(channels / kSlab), static_cast<unsigned>(count));
  const size_t bytes = kSlab * (places | 1) * sizeof(float);
  slab_kernel<<<blocks, kSlabThreads, bytes, stream>>>(static_cast<int>(channels),
                                                       static_cast<int>(places), wide, narrow);
  check_launch("transpose_slabs");
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
    return transpose_slabs(shape.count, shape.rows, shape.columns, in,
                           static_cast<__nv_bfloat162*>(out), stream);
  transpose(shape, in, static_cast<__nv_bfloat16*>(out), stream);
}

void transpose_to_float32(const Matrices& shape, const void* in, float* out, cudaStream_t stream) {
  if (fits_a_slab(shape.columns, shape.rows) && shape.count <= kMostBlocks)
    return transpose_slabs(shape.count, shape.columns, shape.rows, out,
                           static_cast<const __nv_bfloat162*>(in), stream);
  transpose(shape, static_cast<const __nv_bfloat16*>(in), out, stream);
}

}  // namespace remcaps::kernels::cuda
