#include "remcaps/data/formats/idx.h"

#include <fmt/ranges.h>

#include <array>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/gz_reader.h"

namespace remcaps {

torch::Tensor read_idx(const std::filesystem::path& path) {
  constexpr uint8_t kUnsignedByte = 0x08;
  constexpr int64_t kMaxElements = int64_t{1} << 34;
  GzReader file(path);
  std::array<uint8_t, 4> magic{};
  file.read_exactly(magic.data(), magic.size(), "idx header");
  check(
      magic[0] == 0 && magic[1] == 0 && magic[2] == kUnsignedByte && magic[3] >= 1 && magic[3] <= 4,
      "{}: starts with {:02x}{:02x}{:02x}{:02x}; an idx file of bytes starts with 00000801 to "
      "00000804",
      path.string(), magic[0], magic[1], magic[2], magic[3]);

  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int i = 0; i < magic[3]; ++i) {
    std::array<uint8_t, 4> extent{};
    file.read_exactly(extent.data(), extent.size(), "idx header");
    shape.push_back(int64_t{extent[0]} << 24 | int64_t{extent[1]} << 16 | int64_t{extent[2]} << 8 |
                    int64_t{extent[3]});
    check(shape.back() > 0 && shape.back() <= kMaxElements / elements,
          "{}: the header gives the shape [{}]; expected positive extents of a sensible size",
          path.string(), fmt::join(shape, ", "));
    elements *= shape.back();
  }
  file.expect_room(elements, "data");
  torch::Tensor data = torch::empty(shape, torch::kUInt8);
  file.read_exactly(data.data_ptr(), static_cast<size_t>(elements),
                    fmt::format("data for the shape [{}] in its header", fmt::join(shape, ", ")));
  file.expect_end(fmt::format("the shape [{}] in its header", fmt::join(shape, ", ")));
  return data;
}

Dataset read_idx_pair(const std::filesystem::path& images, const std::filesystem::path& labels,
                      int64_t classes) {
  Dataset dataset;
  dataset.images = read_idx(images);
  check(dataset.images.dim() == 3, "{}: an idx file of {} dimensions; images have 3",
        images.string(), dataset.images.dim());
  dataset.images = dataset.images.unsqueeze(1);
  dataset.labels = read_idx(labels).to(torch::kInt64);
  check(dataset.labels.dim() == 1, "{}: an idx file of {} dimensions; labels have 1",
        labels.string(), dataset.labels.dim());
  check(dataset.images.size(0) == dataset.labels.size(0), "{}: {} labels; {} holds {} images",
        labels.string(), with_commas(dataset.labels.size(0)), images.filename().string(),
        with_commas(dataset.images.size(0)));
  check_labels(labels, dataset.labels, classes);
  return dataset;
}

}  // namespace remcaps
