// PNG and JPEG pictures as tensors.
#pragma once

#include <torch/types.h>

#include <filesystem>

#include "remcaps/data/formats/picture_file.h"

namespace remcaps {

/// Decodes a picture: uint8 [C, H, W]. `channels` is 1 (colour is turned into grey as in ITU-R
/// 601), 3 (grey is repeated), or 0 for what the file has. Transparency is dropped.
///
/// Error if the file is neither PNG nor JPEG, or is cut short or damaged: half a picture is
/// never returned.
torch::Tensor read_image(const std::filesystem::path& path, int64_t channels);

}  // namespace remcaps
