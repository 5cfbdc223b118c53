#include "remcaps/data/readers.h"

#include "remcaps/base/error.h"
#include "remcaps/data/cifar.h"
#include "remcaps/data/gz_reader.h"
#include "remcaps/data/idx.h"
#include "remcaps/data/image_folder.h"
#include "remcaps/data/mat5.h"
#include "remcaps/data/norb.h"
#include "remcaps/data/prepared.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

// A file every copy of the data set has; empty for folders of images, which are recognised by their
// sub-folders.
std::string probe_file(const CatalogEntry& entry) {
  return entry.files.empty() ? "" : fs::path(entry.files.front().path).filename().string();
}

bool holds(const CatalogEntry& entry, const fs::path& folder) {
  if (!entry.files.empty()) return !plain_or_gz(folder, probe_file(entry)).empty();
  if (entry.name == "tiny-imagenet")
    return fs::is_regular_file(folder / "wnids.txt") && fs::is_directory(folder / "train");
  if (entry.name == "dogs-vs-cats") return !list_dogs_vs_cats(folder).empty();
  if (entry.name == "imagenette")
    return fs::is_directory(folder / "train" / "n01440764") && fs::is_directory(folder / "val");
  return fs::is_directory(folder);
}

// The folder, or one line that says where was looked and what to do.
fs::path require_files(const CatalogEntry& entry, const std::string& folder, const fs::path& root) {
  fs::path found = find_files(entry, folder, root);
  if (!found.empty()) return found;
  const std::string what = probe_file(entry).empty() ? "files" : probe_file(entry);
  if (!folder.empty()) fail("{}: no {} of {} there", folder, what, entry.title);
  const fs::path first = root / (entry.homes.empty() ? entry.name : entry.homes.front());
  fail("{}: no {} in {} ({}; --data DIR names another data folder)", entry.name, what,
       first.string(),
       entry.providers.empty() ? entry.by_hand
                               : fmt::format("`remcaps data fetch {}` downloads it", entry.name));
}

fs::path require_file(const fs::path& folder, const std::string& name) {
  fs::path path = plain_or_gz(folder, name);
  check(!path.empty(), "{}: is missing (nor is its .gz there)", (folder / name).string());
  return path;
}

Dataset read_idx_part(const fs::path& folder, const std::string& part, int64_t classes) {
  return read_idx_pair(require_file(folder, part + "-images-idx3-ubyte"),
                       require_file(folder, part + "-labels-idx1-ubyte"), classes);
}

void read_small_norb_parts(const fs::path& folder, SourceData& source) {
  const auto read = [&](const std::string& stem) {
    return read_small_norb(require_file(folder, stem + "dat.mat"),
                           require_file(folder, stem + "cat.mat"),
                           plain_or_gz(folder, stem + "info.mat"));
  };
  source.train = read("smallnorb-5x46789x9x18x6x2x96x96-training-");
  source.test = read("smallnorb-5x01235x9x18x6x2x96x96-testing-");
}

// Expanded MNIST: every digit in the middle of 40 x 40 black pixels. The random shift of up to 6
// pixels that makes it "expanded" is the training augmentation.
Dataset padded(Dataset digits) {
  digits.images = torch::constant_pad_nd(digits.images, {6, 6, 6, 6}, 0);
  return digits;
}

void read_expanded_mnist(const DatasetOptions& options, const fs::path& root, SourceData& source) {
  const CatalogEntry& mnist = catalog_entry("mnist");
  fs::path folder;
  if (!options.folder.empty()) folder = find_files(mnist, options.folder, root);
  if (folder.empty()) folder = require_files(mnist, "", root);
  source.train = padded(read_idx_part(folder, "train", 10));
  source.validation = padded(read_idx_part(folder, "t10k", 10));

  const CatalogEntry& affnist = catalog_entry("affnist");
  const fs::path where = find_files(affnist, options.folder, root);
  if (where.empty()) {
    source.missing["test"] = fmt::format(
        "{} is missing (`remcaps data fetch affnist` downloads it)",
        ((options.folder.empty() ? root / "affnist" : fs::path(options.folder)) / "test.mat")
            .string());
    source.where = folder;
    return;
  }
  source.test = read_affnist(where / "test.mat");
  source.where = where;
}

}  // namespace

std::vector<fs::path> candidate_folders(const CatalogEntry& entry, const std::string& folder,
                                        const fs::path& root) {
  std::vector<fs::path> homes, candidates;
  if (!folder.empty()) {
    homes.emplace_back(folder);
  } else {
    for (const std::string& home : entry.homes) homes.push_back(root / home);
  }
  const std::vector<std::string> as_given = {""};
  for (const fs::path& home : homes)
    for (const std::string& inner : entry.inner.empty() ? as_given : entry.inner)
      candidates.push_back(inner.empty() ? home : home / inner);
  return candidates;
}

fs::path find_files(const CatalogEntry& entry, const std::string& folder, const fs::path& root) {
  for (const fs::path& candidate : candidate_folders(entry, folder, root))
    if (fs::is_directory(candidate) && holds(entry, candidate)) return candidate;
  return {};
}

SourceData read_files(const DatasetOptions& options, const fs::path& root) {
  const CatalogEntry& entry = catalog_entry(options.name);
  SourceData source;
  source.name = entry.name;
  source.class_names = entry.class_names;
  if (entry.name == "affnist") {
    read_expanded_mnist(options, root, source);
    return source;
  }
  if (entry.name == "folder" && options.folder.empty())
    throw UsageError("data set folder: give dataset.folder, the folder that holds the images");
  source.where = require_files(entry, options.folder, root);
  const fs::path& folder = source.where;
  if (entry.name == "mnist" || entry.name == "fashion-mnist") {
    source.train = read_idx_part(folder, "train", 10);
    source.test = read_idx_part(folder, "t10k", 10);
  } else if (entry.name == "cifar10") {
    std::vector<fs::path> batches;
    for (int i = 1; i <= 5; ++i)
      batches.push_back(require_file(folder, fmt::format("data_batch_{}.bin", i)));
    source.train = read_cifar_batches(batches);
    source.test = read_cifar_batch(require_file(folder, "test_batch.bin"));
  } else if (entry.name == "svhn") {
    source.train = read_svhn(folder / "train_32x32.mat");
    source.test = read_svhn(folder / "test_32x32.mat");
  } else if (entry.name == "smallnorb") {
    read_small_norb_parts(folder, source);
  } else {
    const ImageSet images = list_images(entry, folder);
    const int64_t side = options.image_size > 0 ? options.image_size
                         : entry.shape.empty()  ? 0
                                                : entry.shape[1];
    const ImageShape shape = common_shape(images, entry.shape.empty() ? 0 : entry.shape[0], side);
    source.class_names = images.class_names;
    source.train = decode_images(images.train, shape);
    source.validation = decode_images(images.validation, shape);
    source.test = decode_images(images.test, shape);
  }
  return source;
}

SourceData read_source(const DatasetOptions& options, const fs::path& root) {
  const CatalogEntry& entry = catalog_entry(options.name);
  const fs::path prepared = find_prepared(entry.name, options.folder, root);
  if (!prepared.empty()) {
    SourceData source = read_prepared(prepared, entry.name);
    if (options.image_size == 0 || source.train.images.size(-1) == options.image_size)
      return source;
    check(
        !find_files(entry, options.folder, root).empty(),
        "{}: holds images of {} pixels; dataset.image_size asks for {}, and the files it was made "
        "from are not there",
        prepared.string(), source.train.images.size(-1), options.image_size);
  }
  return read_files(options, root);
}

}  // namespace remcaps
