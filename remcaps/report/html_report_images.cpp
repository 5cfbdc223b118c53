#include "remcaps/report/html_report_images.h"

#include <fmt/format.h>

#include "remcaps/base/random.h"
#include "remcaps/data/batches.h"

namespace remcaps {

namespace {

// Bytes before compression. With these limits and the one of write_html_report() for couplings, a
// report stays under 20 MB.
constexpr double kImageBytes = 3e6;
constexpr double kGalleryBytes = 2e6;
constexpr int64_t kGallerySide = 32;
constexpr int64_t kSmallestSide = 24;

// Only what moves or cuts the picture: the pixels are shown unchanged.
AugmentOptions geometry_of(const AugmentOptions& augment) {
  AugmentOptions geometry;
  geometry.pad = augment.pad;
  geometry.crop = augment.crop;
  // Without a crop a resize only changes the resolution.
  geometry.resize = augment.crop > 0 ? augment.resize : 0;
  return geometry;
}

int64_t shown_channels(int64_t channels) {
  return channels == 3 ? 3 : 1;  // the first picture of a stereo pair
}

}  // namespace

std::string geometry_key(const AugmentOptions& augment) {
  if (augment.crop == 0) return fmt::format("pad {}", augment.pad);
  return fmt::format("pad {} resize {} crop {}", augment.pad, augment.resize, augment.crop);
}

ReportImages::ReportImages(const Dataset& images, std::vector<std::string> class_names,
                           AugmentOptions augment, int64_t samples, double share)
    : images_(images),
      class_names_(std::move(class_names)),
      geometry_(geometry_of(augment)),
      share_(share) {
  const torch::Tensor order =
      torch::tensor(random_permutation(images.size(), /*seed=*/0, /*epoch=*/0));
  const int64_t count = std::min(samples, images.size());
  places_.assign(order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + count);
  std::sort(places_.begin(), places_.end());
}

// bytes [N, C, H, W] -> uint8 [N, 1 or 3, h, w], no side longer than `side`.
torch::Tensor ReportImages::shown(const torch::Tensor& bytes, int64_t side) const {
  torch::Tensor images = prepare_images(bytes, geometry_);  // 0..1
  images = images.narrow(1, 0, shown_channels(images.size(1)));
  const int64_t height = images.size(2), width = images.size(3);
  const int64_t longest = std::max(height, width);
  if (longest > side)
    images = torch::adaptive_avg_pool2d(images, {std::max<int64_t>(1, height * side / longest),
                                                 std::max<int64_t>(1, width * side / longest)});
  return images.mul(255).round().clamp(0, 255).to(torch::kUInt8).contiguous();
}

std::vector<int64_t> ReportImages::shown_size() const {
  const torch::Tensor one = shown(images_.images.narrow(0, 0, 1), INT64_MAX);
  const int64_t longest = std::max(one.size(2), one.size(3));
  const double pixels =
      share_ * kImageBytes / static_cast<double>(one.size(1) * std::max<size_t>(1, places_.size()));
  // Never larger than the images are.
  const int64_t side =
      std::min(std::max(static_cast<int64_t>(std::sqrt(pixels)), kSmallestSide), longest);
  return shown(images_.images.narrow(0, 0, 1), side).sizes().slice(2).vec();
}

int64_t ReportImages::gallery_capacity() const {
  const torch::Tensor one = shown(images_.images.narrow(0, 0, 1), kGallerySide);
  return static_cast<int64_t>(share_ * kGalleryBytes / static_cast<double>(one.numel()));
}

int64_t ReportImages::add_shown(const torch::Tensor& image) {
  gallery_.push_back(image);
  return static_cast<int64_t>(gallery_.size()) - 1;
}

int64_t ReportImages::add_to_gallery(int64_t place) {
  const auto found = in_gallery_.find(place);
  if (found != in_gallery_.end()) return found->second;
  return in_gallery_[place] = add_shown(shown(images_.images.narrow(0, place, 1), kGallerySide));
}

int64_t ReportImages::add_mean_to_gallery(const std::vector<int64_t>& places) {
  torch::Tensor sum;
  for (const int64_t place : places) {
    const torch::Tensor image = images_.images.narrow(0, place, 1).to(torch::kDouble);
    sum = sum.defined() ? sum + image : image;
  }
  const torch::Tensor mean = (sum / static_cast<double>(places.size())).round().to(torch::kUInt8);
  return add_shown(shown(mean, kGallerySide));
}

nlohmann::json ReportImages::to_json(PageBlobs& blobs) const {
  const torch::Tensor index = torch::tensor(places_, torch::kLong);
  const std::vector<int64_t> size = shown_size();
  const torch::Tensor labels = images_.labels.index_select(0, index).contiguous();
  const torch::Tensor gallery =
      gallery_.empty() ? torch::empty({0, 1, 1, 1}, torch::kUInt8) : torch::cat(gallery_);
  std::vector<std::string> names;
  if (!images_.names.empty())
    for (const int64_t place : places_) names.push_back(images_.names[static_cast<size_t>(place)]);
  return {{"samples", images_.size()},
          {"names", names},
          {"classes", class_names_},
          {"indices", places_},
          {"labels", std::vector<int64_t>(labels.data_ptr<int64_t>(),
                                          labels.data_ptr<int64_t>() + labels.numel())},
          {"images",
           blobs.add(shown(images_.images.index_select(0, index), std::max(size[0], size[1])))},
          {"gallery", blobs.add(gallery)}};
}

}  // namespace remcaps
