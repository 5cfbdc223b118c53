#include "remcaps/data/formats/image_tree.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/parallel.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/data/formats/image_file.h"
#include "remcaps/data/resize.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

bool is_picture(const fs::path& path) {
  const std::string suffix = lower_case(path.extension().string());
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

// Calls `work` for every picture, on several threads; the first error stops all and is thrown.
void for_each_picture(const std::vector<LabelledImage>& list,
                      const std::function<void(size_t)>& work) {
  Progress progress("decoding", static_cast<int64_t>(list.size()));
  TaskQueue queue(static_cast<int64_t>(list.size()));
  std::atomic<bool> failed = false;
  std::mutex mutex;
  int64_t done = 0;
  on_every_thread([&] {
    while (!failed) {
      const auto task = queue.next();
      if (!task) return;
      try {
        work(static_cast<size_t>(*task));
      } catch (...) {
        failed = true;
        throw;
      }
      const std::lock_guard lock(mutex);
      progress.update(++done, with_commas(static_cast<int64_t>(list.size())));
    }
  });
}

}  // namespace

std::vector<fs::path> list_pictures(const fs::path& folder) {
  return sorted_entries(folder, false);
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

std::vector<LabelledImage> list_classes(const fs::path& folder,
                                        const std::vector<std::string>& classes,
                                        const std::string& inner) {
  std::vector<LabelledImage> list;
  for (size_t label = 0; label < classes.size(); ++label) {
    const fs::path home = inner.empty() ? folder / classes[label] : folder / classes[label] / inner;
    check(fs::is_directory(home), "{}: is missing; expected the images of class {}", home.string(),
          classes[label]);
    const auto pictures = list_pictures(home);
    check(!pictures.empty(), "{}: holds no PNG or JPEG images", home.string());
    for (const fs::path& picture : pictures) list.push_back({picture, static_cast<int64_t>(label)});
  }
  return list;
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
  // If only one of the two stands beside train/, it is the test set.
  if (images.test.empty()) std::swap(images.test, images.validation);
  return images;
}

PictureShape common_shape(const ImageSet& images, int64_t channels, int64_t side) {
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
  PictureShape shape{channels > 0 ? channels : most, side, side};
  if (side > 0) return shape;
  const auto size = sizes.size() == 1 ? *sizes.begin() : std::pair(kSide, kSide);
  shape.height = size.first;
  shape.width = size.second;
  return shape;
}

Dataset decode_images(const std::vector<LabelledImage>& list, const PictureShape& shape) {
  const auto n = static_cast<int64_t>(list.size());
  Dataset dataset;
  if (n == 0) return dataset;
  dataset.images = torch::empty({n, shape.channels, shape.height, shape.width}, torch::kUInt8);
  dataset.labels = torch::empty({n}, torch::kInt64);
  for (const LabelledImage& image : list) dataset.names.push_back(image.path.filename().string());
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
