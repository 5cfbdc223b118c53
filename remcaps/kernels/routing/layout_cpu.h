// How the CPU routing cuts a batch into groups of images and the children into chunks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/routing/steps_simd.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels::cpu {

// How a problem is cut up: groups of one image per lane, and chunks of children. The cut depends on
// the shape alone, so results do not depend on the number of threads. A chunk's weights fit the
// second-level cache while all groups pass over them.
struct Cut {
  explicit Cut(const RoutingShape& shape)
      : lanes(image_lanes()),
        groups(pieces_of(shape.batch, lanes)),
        chunk(std::max<int64_t>(8, (shape.children + 31) / 32)),
        chunks(pieces_of(shape.children, chunk)),
        child_floats(shape.children * shape.child_dim * lanes),
        pose_floats(shape.pose_size() * lanes),
        coupling_floats(shape.children * shape.parents * lanes) {}

  int64_t lanes, groups, chunk, chunks;
  int64_t child_floats, pose_floats, coupling_floats;  ///< of one group's arrays
};

// [B, X] -> [groups, X, lanes]; lanes beyond the batch are zero.
void pack(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to);

// [groups, X, lanes] -> [B, X]
void unpack(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to);

}  // namespace remcaps::kernels::cpu
