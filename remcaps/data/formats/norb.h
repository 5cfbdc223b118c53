// The matrix format of NORB and smallNORB: stereo pairs, categories and poses.
#pragma once

#include <torch/types.h>

#include <filesystem>

#include "remcaps/data/dataset.h"

namespace remcaps {

/// Reads a NORB matrix file, plain or gzip-compressed: uint8 or int32, the shape its header gives.
torch::Tensor read_norb_matrix(const std::filesystem::path& path);

/// Reads the three files of one smallNORB set. `info` may be empty: the set then has no attributes.
/// Attributes: "instance", "elevation" and "azimuth" in degrees, "lighting".
Dataset read_small_norb(const std::filesystem::path& dat, const std::filesystem::path& cat,
                        const std::filesystem::path& info);

}  // namespace remcaps
