#include "remcaps/data/formats/image_file.h"

#include "remcaps/base/error.h"
#include "remcaps/kernels/pictures/resize.h"

namespace remcaps {

torch::Tensor read_image(const std::filesystem::path& path, int64_t channels) {
  check(channels == 0 || channels == 1 || channels == 3,
        "{}: asked for {} channels; a picture gives 1 or 3", path.string(), channels);
  const DecodedPicture picture = read_picture(path);
  const ImageHeader& header = picture.header;
  const int64_t wanted = channels == 0 ? header.channels : channels;
  torch::Tensor image = torch::empty({wanted, header.height, header.width}, torch::kUInt8);
  // A plain loop, not tensor operations: pictures are decoded on many threads at once, each of
  // which would otherwise start torch's own.
  kernels::cpu::split_planes(picture.pixels.data(), header.height * header.width, header.channels,
                             wanted, image.data_ptr<uint8_t>());
  return image;
}

}  // namespace remcaps
