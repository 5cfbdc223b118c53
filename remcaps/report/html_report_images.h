// The images a report shows: the part that the network sees, small, as bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "remcaps/data/dataset.h"
#include "remcaps/report/html_report_page.h"

namespace remcaps {

/// Images of one data set and split that several runs share.
class ReportImages {
 public:
  /// The explorer shows `samples` of the images, drawn at random but always the same ones. They may
  /// use `share` (0..1) of a file's room for images.
  ReportImages(const Dataset& images, std::vector<std::string> class_names, AugmentOptions augment,
               int64_t samples, double share = 1);

  /// Places of the explorer's images in the split, ascending.
  const std::vector<int64_t>& places() const { return places_; }
  /// Height and width of the explorer's images.
  std::vector<int64_t> shown_size() const;

  /// How many small images fit into the gallery in all.
  int64_t gallery_capacity() const;
  /// Adds one image, or the mean of some, to the gallery; returns its place there.
  int64_t add_to_gallery(int64_t place);
  int64_t add_mean_to_gallery(const std::vector<int64_t>& places);

  /// The schema's Dataset without name and split.
  nlohmann::json to_json(PageBlobs& blobs) const;

 private:
  torch::Tensor shown(const torch::Tensor& bytes, int64_t side) const;
  int64_t add_shown(const torch::Tensor& image);

  Dataset images_;
  std::vector<std::string> class_names_;
  AugmentOptions geometry_;
  double share_;
  std::vector<int64_t> places_;
  std::map<int64_t, int64_t> in_gallery_;  ///< place in the split -> place in the gallery
  std::vector<torch::Tensor> gallery_;     ///< uint8 [1, C, H, W]
};

/// Equal for recipes that show the network the same part of an image, at any resolution.
std::string geometry_key(const AugmentOptions& augment);

}  // namespace remcaps
