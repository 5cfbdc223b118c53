#include "remcaps/data/formats/norb.h"

#include <fmt/ranges.h>

#include <array>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/gz_reader.h"

namespace remcaps {
namespace {

constexpr uint32_t kByteMatrix = 0x1E3D4C55, kIntMatrix = 0x1E3D4C54;
constexpr int64_t kCategories = 5;

uint32_t read_u32(GzReader& file) {
  std::array<uint8_t, 4> b{};
  file.read_exactly(b.data(), b.size(), "NORB matrix header");
  return uint32_t{b[0]} | uint32_t{b[1]} << 8 | uint32_t{b[2]} << 16 | uint32_t{b[3]} << 24;
}

// One column of the info file, in a range the format allows.
torch::Tensor column(const std::filesystem::path& path, const torch::Tensor& info, int64_t index,
                     const char* name, int64_t low, int64_t high) {
  torch::Tensor values = info.select(1, index).to(torch::kInt64).contiguous();
  const auto lowest = values.min().item<int64_t>(), highest = values.max().item<int64_t>();
  check(lowest >= low && highest <= high, "{}: {} from {} to {}; expected {} to {}", path.string(),
        name, lowest, highest, low, high);
  return values;
}

}  // namespace

torch::Tensor read_norb_matrix(const std::filesystem::path& path) {
  constexpr int64_t kMaxElements = int64_t{1} << 34;
  GzReader file(path);
  const uint32_t magic = read_u32(file);
  check(magic == kByteMatrix || magic == kIntMatrix,
        "{}: starts with {:08x}; a NORB matrix of bytes or integers starts with {:08x} or {:08x}",
        path.string(), magic, kByteMatrix, kIntMatrix);
  const uint32_t dimensions = read_u32(file);
  check(dimensions >= 1 && dimensions <= 4, "{}: a matrix of {} dimensions; expected 1 to 4",
        path.string(), dimensions);
  std::vector<int64_t> shape;
  int64_t elements = 1;
  // The header always has room for three extents, however few the matrix uses.
  for (uint32_t i = 0; i < std::max<uint32_t>(dimensions, 3); ++i) {
    const int64_t extent = read_u32(file);
    if (i >= dimensions) continue;
    check(extent > 0 && extent <= kMaxElements / elements,
          "{}: extent {} of the matrix is {}; expected a positive, sensible size", path.string(), i,
          extent);
    elements *= extent;
    shape.push_back(extent);
  }
  file.expect_room(magic == kByteMatrix ? elements : 4 * elements, "data");
  torch::Tensor matrix = torch::empty(shape, magic == kByteMatrix ? torch::kUInt8 : torch::kInt32);
  file.read_exactly(matrix.data_ptr(), matrix.nbytes(),
                    fmt::format("data for the shape [{}] in its header", fmt::join(shape, ", ")));
  file.expect_end(fmt::format("the shape [{}] in its header", fmt::join(shape, ", ")));
  return matrix;
}

Dataset read_small_norb(const std::filesystem::path& dat, const std::filesystem::path& cat,
                        const std::filesystem::path& info) {
  Dataset dataset;
  dataset.images = read_norb_matrix(dat);
  check(dataset.images.scalar_type() == torch::kUInt8 && dataset.images.dim() == 4 &&
            dataset.images.size(1) == 2,
        "{}: a matrix of shape [{}]; smallNORB's images are bytes of [N, 2, 96, 96]", dat.string(),
        fmt::join(dataset.images.sizes(), ", "));
  const int64_t n = dataset.images.size(0);

  const torch::Tensor categories = read_norb_matrix(cat);
  check(categories.dim() == 1 && categories.size(0) == n, "{}: shape [{}]; {} holds {} images",
        cat.string(), fmt::join(categories.sizes(), ", "), dat.filename().string(), with_commas(n));
  dataset.labels = categories.to(torch::kInt64);
  check_labels(cat, dataset.labels, kCategories);
  if (info.empty()) return dataset;

  const torch::Tensor poses = read_norb_matrix(info);
  check(poses.dim() == 2 && poses.size(0) == n && poses.size(1) == 4,
        "{}: shape [{}]; expected [{}, 4] (instance, elevation, azimuth, lighting)", info.string(),
        fmt::join(poses.sizes(), ", "), n);
  dataset.attributes["instance"] = column(info, poses, 0, "instances", 0, 9);
  dataset.attributes["elevation"] = column(info, poses, 1, "elevations", 0, 8) * 5 + 30;
  dataset.attributes["azimuth"] = column(info, poses, 2, "azimuths", 0, 34) * 10;
  dataset.attributes["lighting"] = column(info, poses, 3, "lightings", 0, 5);
  return dataset;
}

}  // namespace remcaps
