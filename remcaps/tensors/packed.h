// Trained weights in little space.
#pragma once

#include "remcaps/tensors/safetensors.h"

namespace remcaps {

/// Tensors as packed files hold them, and the metadata that says how to read them.
struct PackedTensors {
  TensorMap tensors;
  Metadata metadata;
};

/// Floating-point tensors in half precision. Of one with many zeros only the others are kept, in
/// order, as `<name>.values`, behind a bitmap of all its places, `<name>.bits`: weight 8 k + b is
/// bit b of byte k. Other types stay as they are. Error: a value beyond half precision's 65,504.
PackedTensors pack_tensors(const TensorMap& tensors);

/// The reverse, float32 again; tensors that were never packed are left as they are. Error names
/// `source` where bitmaps, values and shapes do not go together.
TensorMap unpack_tensors(const PackedTensors& packed, const std::string& source);

/// All tensors of a file, packed or not.
TensorMap load_unpacked(const SafetensorsFile& file);

}  // namespace remcaps
