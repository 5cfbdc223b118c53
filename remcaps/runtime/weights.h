// The tensors of a file for the runtime: one at a time, as float32 of a known shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remcaps/runtime/graph.h"
#include "remcaps/tensors/compressed.h"

namespace remcaps::runtime {

class Weights {
 public:
  explicit Weights(const SafetensorsBytes& file) : reader_(file) {}

  const std::string& source() const { return reader_.source(); }
  /// The tensor of a node. Error if there is none or a value is not finite.
  FloatTensor read(const GraphNode& node, const std::string& role) const;
  /// The same without its zeros. Nothing if the file also holds the zeros, or if more than `most`
  /// of its values are not zero.
  std::optional<SparseTensor> read_sparse(const GraphNode& node, const std::string& role,
                                          double most) const;
  /// The same as bytes. Nothing if the file holds it otherwise.
  std::optional<ByteTensor> read_bytes(const GraphNode& node, const std::string& role) const;
  /// The same; error if it has another shape.
  std::vector<float> read(const GraphNode& node, const std::string& role,
                          const std::vector<int64_t>& shape) const;
  /// The same; nothing if the node has no such tensor.
  std::vector<float> read_if_there(const GraphNode& node, const std::string& role,
                                   const std::vector<int64_t>& shape) const;

 private:
  const std::string& name_of(const GraphNode& node, const std::string& role) const;
  void check_finite(const std::vector<float>& values, const std::string& name) const;

  CompressedReader reader_;
};

}  // namespace remcaps::runtime
