#include "remcaps/base/error.h"
#include "remcaps/data/formats/image_tree.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {
namespace fs = std::filesystem;

DatasetDescriptor imagenette() {
  DatasetDescriptor d{
      .name = "imagenette",
      .title = "Imagenette",
      .class_names = {"tench", "English springer", "cassette player", "chain saw", "church",
                      "French horn", "garbage truck", "gas pump", "golf ball", "parachute"},
      .shape = {3, 128, 128},
      .train_images = 9'469,
      .test_images = 3'925,
      .homes = {"imagenette", ""},
      .inner = {"imagenette2-160", "imagenette2-320", "imagenette2", ""}};
  d.providers = {
      {"official",
       {{"https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
         "64d0c4859f35a461889e0147755a999a48b49bf38a7e0f9bd27003f10db02fe5", Unpack::kTar, ""}}}};
  d.terms = "ImageNet's terms, research";
  d.augment = photo_augment();
  d.holds = [](const fs::path& folder) {
    return fs::is_directory(folder / "train" / "n01440764") && fs::is_directory(folder / "val");
  };
  d.list = [names = d.class_names](const fs::path& folder) {
    ImageSet images = list_class_folders(folder);
    check(images.class_names.size() == names.size(), "{}: {} classes; Imagenette has {}",
          (folder / "train").string(), images.class_names.size(), names.size());
    images.class_names = names;  // in the order of their wnids
    return images;
  };
  return d;
}

}  // namespace remcaps::sets
