// The truth test's images: an object pasted on clutter, with a mask that says where the object is.
#pragma once

#include "remcaps/data/dataset.h"

namespace remcaps {

struct PasteOptions {
  int64_t side = 48;          ///< of the canvas, pixels
  int64_t fragments = 12;     ///< pieces of other objects strewn over the canvas
  int64_t fragment_side = 9;  ///< pixels
  uint64_t seed = 0;
  /// A number for each split, so that splits do not share random numbers.
  uint64_t split = 0;
};

struct PastedImages {
  Dataset dataset;      ///< uint8 [N, C, side, side], labels as they were
  torch::Tensor masks;  ///< uint8 [N, side, side], 1 on the object
};

/// Where the objects of images on black are, bool [N, H, W]: all pixels that are not black, with
/// holes filled. uint8 [N, C, H, W].
torch::Tensor object_masks(const torch::Tensor& images);

/// Pastes each object (all pixels that are not black, with holes filled) at a random place of a
/// canvas with square fragments of other images of the set. Fragments have the same textures as
/// objects, so only the whole object shows the class. The same options give the same images.
PastedImages paste_on_clutter(const Dataset& objects, const PasteOptions& options);

/// Pastes a data set's training and test images and writes `file`, which recipes read as
/// `dataset: {name: folder, folder: FILE}`, and the test images' masks as masks_file(file).
void write_pasted(const DataSplits& objects, const PasteOptions& options,
                  const std::filesystem::path& file);

/// pasted.safetensors -> pasted.masks.safetensors
std::filesystem::path masks_file(const std::filesystem::path& file);

/// The masks of a split, uint8 [N, side, side]. Error names a missing or damaged file.
torch::Tensor load_masks(const std::filesystem::path& file, const std::string& split);

}  // namespace remcaps
