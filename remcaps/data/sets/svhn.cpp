#include <fmt/ranges.h>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/mat5.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {
namespace {

// train_32x32.mat or test_32x32.mat: X and y. Label 10 is the digit 0.
Dataset read_svhn(const std::filesystem::path& path) {
  MatFile file(path);
  Dataset dataset;
  const torch::Tensor pixels = file.array("X");  // [N, C, W, H]
  check(pixels.scalar_type() == torch::kUInt8 && pixels.dim() == 4 && pixels.size(1) == 3 &&
            pixels.size(2) == 32 && pixels.size(3) == 32,
        "{}: X is [{}]; expected bytes of [32, 32, 3, N]", path.string(),
        fmt::join(std::vector<int64_t>(pixels.sizes().rbegin(), pixels.sizes().rend()), ", "));
  dataset.images = pixels.transpose(2, 3).contiguous();
  dataset.labels = file.array("y").to(torch::kInt64).flatten();
  check(dataset.labels.size(0) == dataset.images.size(0), "{}: y has {} labels; X has {} images",
        path.string(), with_commas(dataset.labels.size(0)), with_commas(dataset.images.size(0)));
  const auto lowest = dataset.labels.min().item<int64_t>();
  check(lowest >= 1, "{}: label {}; SVHN's labels are 1 to 10", path.string(), lowest);
  dataset.labels =
      torch::where(dataset.labels == 10, torch::zeros_like(dataset.labels), dataset.labels);
  check_labels(path, dataset.labels, 10);
  return dataset;
}

}  // namespace

DatasetDescriptor svhn() {
  DatasetDescriptor d{.name = "svhn",
                      .title = "SVHN (32x32 digits)",
                      .class_names = digit_names(),
                      .shape = {3, 32, 32},
                      .train_images = 73'257,
                      .test_images = 26'032,
                      .homes = {"svhn", "SVHN"}};
  d.files = {
      {"train_32x32.mat", 182'040'794,
       "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"},
      {"test_32x32.mat", 64'275'384,
       "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"},
  };
  Provider official{"official", {}};
  for (const PublishedFile& file : d.files)
    official.downloads.push_back({"http://ufldl.stanford.edu/housenumbers/" + file.path,
                                  file.sha256, Unpack::kNone, file.path});
  d.providers = {official};
  d.terms = "non-commercial use";
  d.augment.shift = 2;
  d.augment.mean = {0.4377, 0.4438, 0.4728};
  d.augment.std = {0.198, 0.201, 0.197};
  d.read = [](const FoundFiles& found, SourceData& source) {
    source.train = read_svhn(found.folder / "train_32x32.mat");
    source.test = read_svhn(found.folder / "test_32x32.mat");
  };
  return d;
}

}  // namespace remcaps::sets
