#include "remcaps/data/image_folder.h"

#include <atomic>
#include <cctype>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "remcaps/base/cpu.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/data/image_file.h"
#include "remcaps/data/resize.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

std::string lower(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

bool is_picture(const fs::path& path) {
  const std::string suffix = lower(path.extension().string());
  return suffix == ".png" || suffix == ".jpg" || suffix == ".jpeg";
}

// Names in byte order, as Python's sorted(): the published splits count on it.
std::vector<fs::path> sorted_entries(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.front() == '.') continue;
    if (folders ? entry.is_directory() : entry.is_regular_file() && is_picture(entry.path()))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return found;
}

std::vector<std::string> folder_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : sorted_entries(folder, true)) {
    names.push_back(path.filename().string());
    check(is_utf8(names.back()), "{}: a class's name has to be UTF-8; rename the folder",
          path.string());
  }
  return names;
}

// folder/<class>/*, or folder/<class>/<inner>/*.
std::vector<LabelledImage> list_classes(const fs::path& folder,
                                        const std::vector<std::string>& classes,
                                        const std::string& inner = "") {
  std::vector<LabelledImage> list;
  for (size_t label = 0; label < classes.size(); ++label) {
    const fs::path home = inner.empty() ? folder / classes[label] : folder / classes[label] / inner;
    check(fs::is_directory(home), "{}: is missing; expected the images of class {}", home.string(),
          classes[label]);
    const auto pictures = sorted_entries(home, false);
    check(!pictures.empty(), "{}: holds no PNG or JPEG images", home.string());
    for (const fs::path& picture : pictures) list.push_back({picture, static_cast<int64_t>(label)});
  }
  return list;
}

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

ImageSet list_class_folders(const fs::path& folder) {
  ImageSet images;
  if (!fs::is_directory(folder / "train")) {
    images.class_names = folder_names(folder);
    check(images.class_names.size() >= 2, "{}: {} sub-folders; expected one for each class",
          folder.string(), images.class_names.size());
    images.train = list_classes(folder, images.class_names);
    return images;
  }
  images.class_names = folder_names(folder / "train");
  check(images.class_names.size() >= 2, "{}: {} sub-folders; expected one for each class",
        (folder / "train").string(), images.class_names.size());
  const auto part = [&](const char* name) {
    const fs::path home = folder / name;
    if (!fs::is_directory(home)) return std::vector<LabelledImage>{};
    for (const std::string& found : folder_names(home))
      check(std::binary_search(images.class_names.begin(), images.class_names.end(), found),
            "{}: a class that train/ does not have", (home / found).string());
    return list_classes(home, images.class_names);
  };
  images.train = part("train");
  images.validation = part("val");
  images.test = part("test");
  // With only one of the two beside train/, it is what tests.
  if (images.test.empty()) std::swap(images.test, images.validation);
  return images;
}

// Calls `work` for every picture, one thread a core; the first error stops all and is thrown.
void for_each_picture(const std::vector<LabelledImage>& list,
                      const std::function<void(size_t)>& work) {
  Progress progress("decoding", static_cast<int64_t>(list.size()));
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t done = 0;
  std::exception_ptr failure;
  const auto worker = [&] {
    for (size_t i = next++; i < list.size(); i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
        next = list.size();
      }
      const std::lock_guard lock(mutex);
      progress.update(static_cast<int64_t>(++done), with_commas(static_cast<int64_t>(list.size())));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < usable_cores(); ++i) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace

std::vector<LabelledImage> list_dogs_vs_cats(const fs::path& folder) {
  for (const fs::path& home : {folder / "train", folder}) {
    if (!fs::is_directory(home)) continue;
    std::vector<std::pair<std::pair<int64_t, int64_t>, fs::path>> flat;  // (label, N), path
    for (const fs::path& picture : sorted_entries(home, false)) {
      const std::string name = lower(picture.filename().string());
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
        if (lower(name) != animal && lower(name) != animal + "s") continue;
        for (const fs::path& picture : sorted_entries(home / name, false))
          list.push_back({picture, label});
      }
    if (!list.empty()) return list;
  }
  return {};
}

ImageSet list_images(const CatalogEntry& entry, const fs::path& folder) {
  if (entry.name == "tiny-imagenet") return list_tiny_imagenet(folder);
  if (entry.name == "dogs-vs-cats") return {entry.class_names, list_dogs_vs_cats(folder), {}, {}};
  ImageSet images = list_class_folders(folder);
  if (entry.name != "imagenette") return images;
  check(images.class_names.size() == entry.class_names.size(), "{}: {} classes; Imagenette has {}",
        (folder / "train").string(), images.class_names.size(), entry.class_names.size());
  images.class_names = entry.class_names;  // its names, in the order of its wnids
  return images;
}

ImageShape common_shape(const ImageSet& images, int64_t channels, int64_t side) {
  constexpr int64_t kSide = 128;
  if (channels > 0 && side > 0) return {channels, side, side};
  std::set<std::pair<int64_t, int64_t>> sizes;
  int64_t most = 1;
  for (const auto* part : {&images.train, &images.validation, &images.test})
    for (const LabelledImage& image : *part) {
      const ImageHeader header = read_image_header(image.path);
      sizes.insert({header.height, header.width});
      most = std::max(most, header.channels);
    }
  ImageShape shape{channels > 0 ? channels : most, side, side};
  if (side > 0) return shape;
  const auto size = sizes.size() == 1 ? *sizes.begin() : std::pair(kSide, kSide);
  shape.height = size.first;
  shape.width = size.second;
  return shape;
}

Dataset decode_images(const std::vector<LabelledImage>& list, const ImageShape& shape) {
  const auto n = static_cast<int64_t>(list.size());
  Dataset dataset;
  if (n == 0) return dataset;
  dataset.images = torch::empty({n, shape.channels, shape.height, shape.width}, torch::kUInt8);
  dataset.labels = torch::empty({n}, torch::kInt64);
  auto* images = dataset.images.data_ptr<uint8_t>();
  auto* labels = dataset.labels.data_ptr<int64_t>();
  for_each_picture(list, [&](size_t i) {
    const torch::Tensor picture =
        resize_picture(read_image(list[i].path, shape.channels), shape.height, shape.width);
    std::memcpy(images + i * picture.nbytes(), picture.data_ptr(), picture.nbytes());
    labels[i] = list[i].label;
  });
  return dataset;
}

std::vector<std::string> damaged_images(const std::vector<LabelledImage>& list, size_t limit) {
  std::vector<std::string> problems;
  std::mutex mutex;
  for_each_picture(list, [&](size_t i) {
    try {
      read_image(list[i].path, 0);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      problems.emplace_back(error.what());
    }
  });
  std::sort(problems.begin(), problems.end());
  if (problems.size() > limit) problems.resize(limit);
  return problems;
}

}  // namespace remcaps
