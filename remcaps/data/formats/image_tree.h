// Folders of pictures: which there are, and their pixels.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

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

struct PictureShape {
  int64_t channels = 0, height = 0, width = 0;
};

/// The PNG and JPEG files of a folder, sorted by name.
std::vector<std::filesystem::path> list_pictures(const std::filesystem::path& folder);

/// The sub-folders of a folder, sorted; Error if one is not UTF-8, as class names must be.
std::vector<std::string> folder_names(const std::filesystem::path& folder);

/// The pictures folder/<class>/* or, if `inner` is given, folder/<class>/<inner>/*. Error if a
/// class has none.
std::vector<LabelledImage> list_classes(const std::filesystem::path& folder,
                                        const std::vector<std::string>& classes,
                                        const std::string& inner = "");

/// folder/<class>/*, or train/<class>/* with val/ and/or test/ beside it. The classes are the names
/// of the sub-folders.
ImageSet list_class_folders(const std::filesystem::path& folder);

/// The shape all pictures of a set are decoded to. `channels` 0: colour if any picture has it.
/// `side` 0: the pictures' own size if they all have the same, else 128 x 128.
PictureShape common_shape(const ImageSet& images, int64_t channels, int64_t side);

/// Decodes and resizes pictures, several at a time. Error names the first that is damaged.
Dataset decode_images(const std::vector<LabelledImage>& list, const PictureShape& shape);

/// One line for every picture that cannot be decoded, at most `limit`.
std::vector<std::string> damaged_images(const std::vector<LabelledImage>& list, size_t limit = 20);

}  // namespace remcaps
