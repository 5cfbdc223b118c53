// The cheap parts of a capsule network on raw pointers: the squash of a map, and the margin loss.
#pragma once

#include <cstdint>

#include "remcaps/kernels/formulas.h"

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace remcaps::kernels {

/// A convolution's output seen as capsules [B, types, D, places]. Element (b, type, d, place) lies
/// at
///   b * batch_stride + type * type_stride + d * dim_stride + place * place_stride
/// so that both NCHW and channels-last maps are read without a copy.
struct CapsuleMap {
  int64_t batch = 0, types = 0, dim = 0, places = 0;
  int64_t batch_stride = 0, type_stride = 0, dim_stride = 0, place_stride = 0;

  REMCAPS_HOST_DEVICE int64_t capsules() const { return batch * types * places; }
  /// Whether all capsules follow each other without gaps: a dense channels-last map.
  bool is_flat() const {
    return dim_stride == 1 && type_stride == dim && place_stride == types * dim &&
           batch_stride == places * place_stride;
  }
};

/// The type of a map. Capsules [B, types * places, D] are always float32.
enum class MapType { kFloat32, kBFloat16 };

namespace cpu {
/// capsules[b, type * places + place, :] = squash(map[b, type, :, place]). The map is float32.
void squash_map(const CapsuleMap& shape, const float* map, float epsilon, float* capsules);
/// The gradient of the map, in the map's layout, from the gradient of the capsules.
void squash_map_gradient(const CapsuleMap& shape, const float* map, const float* grad_capsules,
                         float epsilon, float* grad_map);
/// squashed[b, type, :, place] = squash(map[b, type, :, place]), in the map's layout.
void squash_channels(const CapsuleMap& shape, const float* map, float epsilon, float* squashed);
/// All three maps have the same layout.
void squash_channels_gradient(const CapsuleMap& shape, const float* map, const float* grad_squashed,
                              float epsilon, float* grad_map);
/// loss[0] = the mean margin loss of activations [B, J]; gradient [B, J] is its derivative.
void margin_loss(int64_t batch, int64_t classes, const float* activations, const int64_t* labels,
                 const Margins& margins, float* loss, float* gradient);
}  // namespace cpu

#ifdef REMCAPS_CUDA
namespace cuda {
void squash_map(const CapsuleMap& shape, MapType type, const void* map, float epsilon,
                float* capsules, cudaStream_t stream);
void squash_map_gradient(const CapsuleMap& shape, MapType type, const void* map,
                         const float* grad_capsules, float epsilon, void* grad_map,
                         cudaStream_t stream);
/// All maps have the same type.
void squash_channels(const CapsuleMap& shape, MapType type, const void* map, float epsilon,
                     void* squashed, cudaStream_t stream);
void squash_channels_gradient(const CapsuleMap& shape, MapType type, const void* map,
                              const void* grad_squashed, float epsilon, void* grad_map,
                              cudaStream_t stream);
void margin_loss(int64_t batch, int64_t classes, const float* activations, const int64_t* labels,
                 const Margins& margins, float* loss, float* gradient, cudaStream_t stream);
}  // namespace cuda
#endif

}  // namespace remcaps::kernels
