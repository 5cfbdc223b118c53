// The idx format of MNIST and Fashion-MNIST: a big-endian header, then bytes.
#pragma once

#include <torch/types.h>

#include <filesystem>

#include "remcaps/data/dataset.h"

namespace remcaps {

/// Reads an idx file of unsigned bytes, plain or gzip-compressed: uint8, the shape its header
/// gives.
torch::Tensor read_idx(const std::filesystem::path& path);

/// Reads an image file and its label file; labels must lie in 0..classes-1.
Dataset read_idx_pair(const std::filesystem::path& images, const std::filesystem::path& labels,
                      int64_t classes);

}  // namespace remcaps
