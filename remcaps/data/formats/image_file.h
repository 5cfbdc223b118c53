// PNG and JPEG pictures.
#pragma once

#include <torch/types.h>

#include <filesystem>

namespace remcaps {

struct ImageHeader {
  int64_t height = 0, width = 0;
  int64_t channels = 0;  ///< 1 (grey) or 3 (colour); transparency is not counted
};

/// Reads only the header. Error if the file is neither PNG nor JPEG.
ImageHeader read_image_header(const std::filesystem::path& path);

/// Decodes a picture: uint8 [C, H, W]. `channels` is 1 (colour is turned into grey as in ITU-R
/// 601), 3 (grey is repeated), or 0 for what the file has. Transparency is dropped.
///
/// Error if the file is neither PNG nor JPEG, or is cut short or damaged: half a picture is
/// never returned.
torch::Tensor read_image(const std::filesystem::path& path, int64_t channels);

}  // namespace remcaps
