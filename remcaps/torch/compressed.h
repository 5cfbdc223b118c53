// Compressed weights (tensors/compressed.h) from and to libtorch's tensors.
#pragma once

#include "remcaps/torch/safetensors.h"

namespace remcaps {

/// Tensors as compressed files hold them, and the metadata that says how to read them.
struct CompressedTensors {
  TensorMap tensors;
  Metadata metadata;
};

/// Floating-point tensors in half precision. If one has many zeros, only its other values are kept,
/// behind a bitmap (SparseHalves). Other types stay as they are. Error: a value beyond half
/// precision's 65,504.
CompressedTensors compress_tensors(const TensorMap& tensors);

/// The reverse, float32 again; tensors that were never compressed are left as they are. Error names
/// `source` if bitmaps, values and shapes do not fit together.
TensorMap decompress_tensors(const CompressedTensors& compressed, const std::string& source);

/// All tensors of a file, compressed or not.
TensorMap load_decompressed(const SafetensorsFile& file);

}  // namespace remcaps
