// MAT-5 files (SVHN, affNIST), read with libmatio if the build has it.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>

namespace remcaps {

/// Whether this build can read MAT files.
bool can_read_mat();

/// A MAT-5 file. Opening it checks its structure: Error if it is not MAT-5, is cut short, or a
/// compressed part of it is damaged.
class MatFile {
 public:
  explicit MatFile(const std::filesystem::path& path);

  /// A numeric array, or the numeric field `field` of a 1 x 1 structure. MATLAB stores columns
  /// first: the tensor has the extents in reverse ([32, 32, 3, N] in MATLAB is [N, 3, 32, 32] here,
  /// each image transposed). uint8 stays uint8, other whole numbers become int64, the rest float64.
  torch::Tensor array(const std::string& variable, const std::string& field = "");

 private:
  std::filesystem::path path_;
  std::string variable_;            // the one read last
  std::shared_ptr<void> contents_;  // its matvar_t
};

}  // namespace remcaps
