#include <algorithm>
#include <cstdlib>

#include "remcaps/base/text.h"
#include "remcaps/data/formats/image_tree.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {
namespace fs = std::filesystem;
namespace {

// cat.N.jpg and dog.N.jpg, or one folder a class (cat, Cat, cats, ...), in `folder` or its train/;
// empty if there are none.
std::vector<LabelledImage> list_dogs_vs_cats(const fs::path& folder) {
  for (const fs::path& home : {folder / "train", folder}) {
    if (!fs::is_directory(home)) continue;
    std::vector<std::pair<std::pair<int64_t, int64_t>, fs::path>> flat;  // (label, N), path
    for (const fs::path& picture : list_pictures(home)) {
      const std::string name = lower_case(picture.filename().string());
      const bool cat = name.rfind("cat.", 0) == 0, dog = name.rfind("dog.", 0) == 0;
      if (cat || dog) flat.push_back({{dog ? 1 : 0, std::atoll(name.c_str() + 4)}, picture});
    }
    std::sort(flat.begin(), flat.end());
    std::vector<LabelledImage> list;
    for (const auto& [key, path] : flat) list.push_back({path, key.first});
    if (!list.empty()) return list;

    for (const std::string& name : folder_names(home))
      for (const int64_t label : {0, 1}) {
        const std::string animal = label == 0 ? "cat" : "dog";
        if (lower_case(name) != animal && lower_case(name) != animal + "s") continue;
        for (const fs::path& picture : list_pictures(home / name)) list.push_back({picture, label});
      }
    if (!list.empty()) return list;
  }
  return {};
}

}  // namespace

DatasetDescriptor dogs_vs_cats() {
  DatasetDescriptor d{.name = "dogs-vs-cats",
                      .title = "Dogs vs. Cats",
                      .class_names = {"cat", "dog"},
                      .shape = {3, 128, 128},
                      .homes = {"dogs-vs-cats", "PetImages"},
                      .inner = {"dogs-vs-cats", "PetImages", ""}};
  d.by_hand =
      "Kaggle asks for an account: https://www.kaggle.com/c/dogs-vs-cats/data; unpack train.zip "
      "so that DATA/dogs-vs-cats/train/cat.0.jpg is there";
  d.terms = "research (Kaggle's competition rules)";
  d.augment = photo_augment();
  d.holds = [](const fs::path& folder) { return !list_dogs_vs_cats(folder).empty(); };
  d.list = [names = d.class_names](const fs::path& folder) {
    return ImageSet{names, list_dogs_vs_cats(folder), {}, {}};
  };
  return d;
}

}  // namespace remcaps::sets
