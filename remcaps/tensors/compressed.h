// Trained weights in little space: half precision or 8 bits, and a bitmap in place of zeros.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remcaps/tensors/safetensors_bytes.h"

namespace remcaps {

/// A tensor with many zeros: the values that are not zero, in order, and a bitmap of all places.
/// Weight 8 k + b is bit b of byte k. A file holds the two as `<name>.values` and `<name>.bits`.
struct SparseHalves {
  std::vector<uint8_t> bits;
  std::vector<uint16_t> values;  ///< half precision
};

/// Leaves the zeros out. Nothing if that would take more space than the values themselves.
std::optional<SparseHalves> compress_halves(std::span<const uint16_t> halves);

/// A tensor of float32 with memory of its own, row-major.
struct FloatTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// A tensor in 8 bits: value = byte * scale, with one scale for each slice of the first dimension. A
/// file holds it as `<name>` and `<name>.scales`, or without its zeros as `<name>.values`,
/// `<name>.bits` and `<name>.scales`.
struct ByteTensor {
  std::vector<int64_t> shape;
  std::vector<int8_t> values;
  std::vector<float> scales;
};

/// Rounds to the nearest of 255 values: multiples of the largest magnitude of the slice / 127.
ByteTensor round_to_bytes(const FloatTensor& tensor);

/// Leaves the zeros out. Nothing if that would take more space than the values themselves.
struct SparseBytes {
  std::vector<uint8_t> bits;
  std::vector<int8_t> values;
};
std::optional<SparseBytes> compress_bytes(const ByteTensor& tensor);

/// The metadata of a compressed file: the shape of each tensor that has a bitmap.
Metadata compressed_metadata(const std::map<std::string, std::vector<int64_t>>& shapes);

/// The values of a tensor that are not zero, and their places in row-major order.
struct SparseTensor {
  std::vector<int64_t> shape;
  std::vector<uint32_t> places;  ///< ascending
  std::vector<float> values;

  FloatTensor dense() const;
};

/// The tensors of a file, compressed or not, as they were before compression.
struct DecompressedTensors {
  std::map<std::string, FloatTensor> floats;  ///< what the file holds in half precision
  TensorViews others;                         ///< all other tensors, as the file holds them
};

/// Error names `source` if bitmaps, values and shapes do not fit together.
DecompressedTensors decompress(const TensorViews& tensors, const Metadata& metadata,
                               const std::string& source);

/// Reads the same tensors one at a time, each as float32, so that only one has to be in memory.
class CompressedReader {
 public:
  /// The file must outlive the reader. Error if its compressed shapes are damaged.
  explicit CompressedReader(const SafetensorsBytes& file);

  const std::string& source() const { return file_.source(); }
  /// Error if there is no such tensor, or if it has neither float32, half precision nor 8 bits.
  FloatTensor read(const std::string& name) const;
  /// The same in 8 bits. Nothing if the file does not hold it so.
  std::optional<ByteTensor> read_bytes(const std::string& name) const;
  /// The same without the zeros. Nothing if the file holds the zeros, too.
  std::optional<SparseTensor> read_sparse(const std::string& name) const;

 private:
  const SafetensorsBytes& file_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

}  // namespace remcaps
