// Packed weights (tensors/packed.h) from and to libtorch's tensors.
#pragma once

#include "remcaps/torch/safetensors.h"

namespace remcaps {

/// Tensors as packed files hold them, and the metadata that says how to read them.
struct PackedTensors {
  TensorMap tensors;
  Metadata metadata;
};

/// Floating-point tensors in half precision. If one has many zeros, only its other values are kept,
/// behind a bitmap (SparseHalves). Other types stay as they are. Error: a value beyond half
/// precision's 65,504.
PackedTensors pack_tensors(const TensorMap& tensors);

/// The reverse, float32 again; tensors that were never packed are left as they are. Error names
/// `source` if bitmaps, values and shapes do not fit together.
TensorMap unpack_tensors(const PackedTensors& packed, const std::string& source);

/// All tensors of a file, packed or not.
TensorMap load_unpacked(const SafetensorsFile& file);

}  // namespace remcaps
