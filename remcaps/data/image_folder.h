// Data sets that are folders of pictures: Tiny ImageNet, Imagenette, Dogs vs. Cats, any other.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/data/catalog.h"
#include "remcaps/data/dataset.h"

namespace remcaps {

struct LabelledImage {
  std::filesystem::path path;
  int64_t label = 0;
};

/// The pictures of a data set as its folders divide them, each part sorted by class, then by name.
struct ImageSet {
  std::vector<std::string> class_names;
  std::vector<LabelledImage> train, validation, test;
};

struct ImageShape {
  int64_t channels = 0, height = 0, width = 0;
};

/// Lists the pictures of the data set `entry` in `folder`, without opening them.
///   tiny-imagenet  wnids.txt, train/<wnid>/images/*.JPEG, val/images + val_annotations.txt
///   imagenette     train/<wnid>/*.JPEG, val/<wnid>/*.JPEG
///   dogs-vs-cats   see list_dogs_vs_cats
///   folder         <class>/*, or train/<class>/* with val/ and/or test/ beside it
ImageSet list_images(const CatalogEntry& entry, const std::filesystem::path& folder);

/// cat.N.jpg and dog.N.jpg, or one folder a class (cat, Cat, cats, ...), in `folder` or its train/;
/// empty where there are none.
std::vector<LabelledImage> list_dogs_vs_cats(const std::filesystem::path& folder);

/// The shape all pictures of a set are decoded to. `channels` 0: colour where any picture has it.
/// `side` 0: the pictures' own size where they agree on one, else 128 x 128.
ImageShape common_shape(const ImageSet& images, int64_t channels, int64_t side);

/// Decodes and resizes pictures, several at a time. Error names the first that is damaged.
Dataset decode_images(const std::vector<LabelledImage>& list, const ImageShape& shape);

/// One line for every picture that cannot be decoded, at most `limit`.
std::vector<std::string> damaged_images(const std::vector<LabelledImage>& list, size_t limit = 20);

}  // namespace remcaps
