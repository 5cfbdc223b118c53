#include <fmt/ranges.h>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/data/affine_digits.h"
#include "remcaps/data/formats/mat5.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {
namespace {

constexpr int64_t kSide = 40, kVersions = 32;

// test.mat: the structure affNISTdata with the fields image and label_int.
Dataset read_affnist_test(const std::filesystem::path& path) {
  MatFile file(path);
  Dataset dataset;
  const torch::Tensor pixels = file.array("affNISTdata", "image");  // [N, 1600]
  check(
      pixels.scalar_type() == torch::kUInt8 && pixels.dim() == 2 && pixels.size(1) == kSide * kSide,
      "{}: affNISTdata.image is [{}]; expected bytes of [1600, N]", path.string(),
      fmt::join(std::vector<int64_t>(pixels.sizes().rbegin(), pixels.sizes().rend()), ", "));
  // Element a * 40 + b of an image's column is its row a, column b.
  dataset.images = pixels.view({pixels.size(0), 1, kSide, kSide});
  dataset.labels = file.array("affNISTdata", "label_int").to(torch::kInt64).flatten();
  check(dataset.labels.size(0) == dataset.images.size(0),
        "{}: label_int has {} labels; image has {} images", path.string(),
        with_commas(dataset.labels.size(0)), with_commas(dataset.images.size(0)));
  check_labels(path, dataset.labels, 10);
  return dataset;
}

// Expanded MNIST: every digit in the middle of 40 x 40 black pixels. The random shift of up to 6
// pixels that makes it "expanded" is the training augmentation.
Dataset read_expanded_mnist(const std::filesystem::path& folder, const std::string& part) {
  Dataset digits = read_idx_part(folder, part);
  digits.images = torch::constant_pad_nd(digits.images, {6, 6, 6, 6}, 0);
  return digits;
}

}  // namespace

DatasetDescriptor affnist() {
  DatasetDescriptor d{.name = "affnist",
                      .title = "affNIST (trained on expanded MNIST)",
                      .class_names = digit_names(),
                      .shape = {1, 40, 40},
                      .train_images = 60'000,
                      .test_images = 320'000,
                      .homes = {"affnist", "affNIST"},
                      .inner = {"", "32x/transformed", "transformed"}};
  d.files = {{"test.mat"}};
  d.providers = {{"official",
                  {{"https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip", "",
                    Unpack::kZip, "", "*test.mat", /*flatten=*/true}}}};
  d.terms = "free to use; cite Tieleman 2013";
  d.on_black = true;
  d.augment.shift = 6;
  d.based_on = "mnist";
  d.validation_alias = "expanded-test";  // the paper's 99.22 % is measured on it
  d.read = [](const FoundFiles& found, SourceData& source) {
    source.train = read_expanded_mnist(found.base, "train");
    source.validation = read_expanded_mnist(found.base, "t10k");
    if (!found.folder.empty()) source.test = read_affnist_test(found.folder / "test.mat");
  };
  d.generate_test = [](const std::filesystem::path& base, uint64_t seed) {
    Dataset test = affine_digits(read_idx_part(base, "t10k"), kSide, kVersions, seed);
    test.note = fmt::format(
        "test images generated from MNIST's by `remcaps data make affnist`, seed {}", seed);
    return test;
  };
  return d;
}

}  // namespace remcaps::sets
