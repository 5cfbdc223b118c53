#include <algorithm>
#include <map>
#include <sstream>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/data/formats/image_tree.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> read_lines(const fs::path& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

// The labelled images of val/: image name, wnid, then a box, separated by tabs.
std::vector<LabelledImage> list_annotated(const fs::path& folder,
                                          const std::vector<std::string>& wnids) {
  const fs::path annotations = folder / "val_annotations.txt";
  std::vector<LabelledImage> list;
  for (const std::string& line : read_lines(annotations)) {
    std::istringstream words(line);
    std::string image, wnid;
    words >> image >> wnid;
    const auto found = std::lower_bound(wnids.begin(), wnids.end(), wnid);
    check(found != wnids.end() && *found == wnid,
          "{}: {} has the class {}, which is not in wnids.txt", annotations.string(), image, wnid);
    list.push_back({folder / "images" / image, found - wnids.begin()});
    check(fs::is_regular_file(list.back().path), "{}: is missing; {} names it",
          list.back().path.string(), annotations.filename().string());
  }
  check(!list.empty(), "{}: is empty; expected a line per image", annotations.string());
  return list;
}

ImageSet list_tiny_imagenet(const fs::path& folder) {
  ImageSet images;
  std::vector<std::string> wnids = read_lines(folder / "wnids.txt");
  std::sort(wnids.begin(), wnids.end());
  images.train = list_classes(folder / "train", wnids, "images");
  // The published code moved the labelled val images into class folders; both layouts are read.
  images.test = fs::exists(folder / "val" / "val_annotations.txt")
                    ? list_annotated(folder / "val", wnids)
                    : list_classes(folder / "val", wnids);
  std::map<std::string, std::string> words;
  if (fs::exists(folder / "words.txt"))
    for (const std::string& line : read_lines(folder / "words.txt"))
      if (const auto tab = line.find('\t'); tab != std::string::npos)
        words[line.substr(0, tab)] = line.substr(tab + 1, line.find(',', tab) - tab - 1);
  for (const std::string& wnid : wnids)
    images.class_names.push_back(words.count(wnid) != 0 ? words[wnid] : wnid);
  return images;
}

}  // namespace

DatasetDescriptor tiny_imagenet() {
  DatasetDescriptor d{.name = "tiny-imagenet",
                      .title = "Tiny ImageNet",
                      .shape = {3, 64, 64},
                      .train_images = 100'000,
                      .test_images = 10'000,
                      .homes = {"tiny-imagenet", ""},
                      .inner = {"tiny-imagenet-200", ""}};
  d.providers = {
      {"official",
       {{"http://cs231n.stanford.edu/tiny-imagenet-200.zip",
         "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821", Unpack::kZip, ""}}}};
  d.terms = "ImageNet's terms, research";
  d.augment.resize = 224;
  d.augment.rotation = 20;
  d.augment.flip = true;
  use_imagenet_normalisation(d.augment);
  d.unnamed_classes = 200;
  d.holds = [](const fs::path& folder) {
    return fs::is_regular_file(folder / "wnids.txt") && fs::is_directory(folder / "train");
  };
  d.list = list_tiny_imagenet;
  return d;
}

}  // namespace remcaps::sets
