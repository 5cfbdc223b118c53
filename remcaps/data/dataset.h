// Images in memory, as bytes, and where they come from.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "remcaps/base/config.h"

namespace remcaps {

/// A labelled set of images. Bytes stay bytes until a batch is augmented and normalised.
struct Dataset {
  torch::Tensor images;  ///< uint8 [N, C, H, W]
  torch::Tensor labels;  ///< int64 [N]
  /// Extra integers per image, int64 [N]: smallNORB's "instance", "elevation" and "azimuth" (both
  /// in degrees), "lighting".
  std::map<std::string, torch::Tensor> attributes;
  std::vector<std::string> names;  ///< the files' names, if the set is a folder of pictures
  /// How it differs from the official set, for everybody who reads a number measured on it; empty
  /// if it does not.
  std::string note;

  int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
  /// The images at `indices` (int64 [M], CPU), in that order.
  Dataset select(const torch::Tensor& indices) const;
};

/// Everything a run needs of a data set. Train, validation and test are disjoint and fixed (they do
/// not depend on a seed).
struct DataSplits {
  std::string name;
  std::vector<std::string> class_names;
  Dataset train, validation, test;
  /// Other labelled sets by name: smallNORB's "novel" and "familiar" views under a viewpoint
  /// protocol ("novel" is the test split itself), affNIST's "expanded-test" (MNIST's test images
  /// padded to 40x40, which also validate).
  std::map<std::string, Dataset> extra;
  /// Why a split is empty although the data set has one (affNIST's test set is a separate
  /// download).
  std::map<std::string, std::string> missing;

  /// "train", "validation", "test" or one of extra; Error names the known ones, or says why that
  /// split has no images.
  const Dataset& split(const std::string& name) const;
  /// The splits that have images.
  std::vector<std::string> split_names() const;
};

/// How bytes become a batch: the recipe's `augment` section. In this order: pad, resize, rotation,
/// crop, shift, flip, brightness and contrast, normalisation.
struct AugmentOptions {
  int64_t pad = 0;        ///< zero padding on each side before everything else
  int64_t resize = 0;     ///< side in pixels images are resized to (PIL's bilinear); 0: as they are
  bool antialias = true;  ///< whether a resize that shrinks merges all pixels, or only neighbours
  int64_t crop = 0;       ///< random (training) or centre (evaluation) crop of this side; 0: none
  int64_t shift = 0;      ///< random translation of -shift..shift pixels, zeros come in
  bool flip = false;      ///< horizontal flip with probability 1/2
  double rotation = 0;    ///< degrees, uniform in +-rotation, bilinear, zeros come in
  double brightness = 0;  ///< factor uniform in 1 +- brightness
  double brightness_add = 0;                  ///< added, uniform in +- brightness_add
  std::vector<double> contrast = {1.0, 1.0};  ///< factor uniform between the two
  /// Where brightness and contrast act. "pixels": on images in 0..1, clamped to it, in random
  /// order, contrast about the mean of the grey image (torchvision's ColorJitter). "normalized":
  /// after the normalisation, unclamped, contrast about each channel's mean (Efficient-CapsNet's
  /// smallNORB).
  std::string jitter = "pixels";
  std::vector<double> mean = {0.0}, std = {1.0};  ///< per channel, of images in 0..1
  bool standardize = false;                       ///< per image and channel instead of mean and std
};
void bind(ConfigSection& section, AugmentOptions& options);

/// The recipe's `dataset` section.
struct DatasetOptions {
  std::string name = "fashion-mnist";
  std::string folder;       ///< where the files are; empty: found under the data folder
  std::string protocol;     ///< smallNORB: "", "azimuth" or "elevation"
  int64_t image_size = 0;   ///< side image folders are decoded to; 0: the data set's own
  int64_t validation = -1;  ///< training images that validate; -1: the data set's own rule
  int64_t limit_train = 0;  ///< use only this many training images (0: all); for quick trials
  int64_t limit_test = 0;
  AugmentOptions augment;
};
void bind(ConfigSection& section, DatasetOptions& options);

/// Reads a data set from `data_root` (or options.folder) and splits it. If `remcaps data prepare`
/// has written a file, that one is read. Error: one line that names the file, what was found and
/// what was expected.
DataSplits load_dataset(const DatasetOptions& options, const std::filesystem::path& data_root);

/// --data, else $REMCAPS_DATA, else ~/.cache/remcaps.
std::filesystem::path data_root(const std::string& from_command_line);

std::vector<std::string> dataset_names();

/// Error if a label lies outside 0..classes-1; names the file, the image and the label.
void check_labels(const std::filesystem::path& source, const torch::Tensor& labels,
                  int64_t classes);

/// The published augmentation and normalisation of a data set, before a recipe changes it.
AugmentOptions default_augment(const std::string& dataset_name);

}  // namespace remcaps
