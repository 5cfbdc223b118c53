#include "remcaps/data/sets/common.h"

#include "remcaps/base/error.h"
#include "remcaps/data/formats/gz_reader.h"
#include "remcaps/data/formats/idx.h"

namespace remcaps::sets {
namespace fs = std::filesystem;

std::vector<std::string> digit_names() {
  return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
}

fs::path require_file(const fs::path& folder, const std::string& name) {
  fs::path path = plain_or_gz(folder, name);
  check(!path.empty(), "{}: is missing (nor is its .gz there)", (folder / name).string());
  return path;
}

Provider idx_provider(const std::string& label, const std::string& base) {
  Provider provider{label, {}};
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    provider.downloads.push_back({base + file + ".gz", "", Unpack::kGunzip, file});
  return provider;
}

Dataset read_idx_part(const fs::path& folder, const std::string& part) {
  return read_idx_pair(require_file(folder, part + "-images-idx3-ubyte"),
                       require_file(folder, part + "-labels-idx1-ubyte"), 10);
}

void read_idx_parts(const FoundFiles& found, SourceData& source) {
  source.train = read_idx_part(found.folder, "train");
  source.test = read_idx_part(found.folder, "t10k");
}

void use_imagenet_normalisation(AugmentOptions& augment) {
  augment.mean = {0.485, 0.456, 0.406};
  augment.std = {0.229, 0.224, 0.225};
}

AugmentOptions photo_augment() {
  AugmentOptions augment;
  augment.shift = 8;
  augment.flip = true;
  augment.brightness = 0.25;
  augment.contrast = {0.2, 1.8};
  use_imagenet_normalisation(augment);
  return augment;
}

}  // namespace remcaps::sets
