#include "remcaps/data/formats/image_tree.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {

DatasetDescriptor folder() {
  DatasetDescriptor d{.name = kPictureFolder,
                      .title = "Any folder of pictures, one sub-folder a class"};
  d.by_hand = "give --folder DIR, or dataset.folder in a recipe";
  d.terms = "yours";
  d.needs_folder = true;
  d.splits_by_class = true;
  d.holds = [](const std::filesystem::path& folder) {
    return std::filesystem::is_directory(folder);
  };
  d.list = list_class_folders;
  return d;
}

}  // namespace remcaps::sets
