// PNG and JPEG files, without libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace remcaps {

struct ImageHeader {
  int64_t height = 0, width = 0;
  int64_t channels = 0;  ///< 1 (grey) or 3 (colour); transparency is not counted
};

/// Reads only the header. Error if the file is neither PNG nor JPEG.
ImageHeader read_image_header(const std::filesystem::path& path);

struct DecodedPicture {
  ImageHeader header;
  std::vector<uint8_t> pixels;  ///< [H, W, C]
};

/// Decodes a picture; transparency is dropped. Error if the file is neither PNG nor JPEG, or is cut
/// short or damaged: half a picture is never returned.
DecodedPicture read_picture(const std::filesystem::path& path);

}  // namespace remcaps
