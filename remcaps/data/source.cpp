#include "remcaps/data/source.h"

#include "remcaps/base/error.h"
#include "remcaps/data/formats/gz_reader.h"
#include "remcaps/data/formats/prepared.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

// A file that every copy of the data set has; empty for folders of pictures.
std::string probe_file(const DatasetDescriptor& dataset) {
  return dataset.files.empty() ? "" : fs::path(dataset.files.front().path).filename().string();
}

bool holds_dataset(const DatasetDescriptor& dataset, const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  return dataset.holds ? dataset.holds(folder) : !plain_or_gz(folder, probe_file(dataset)).empty();
}

fs::path first_home(const DatasetDescriptor& dataset, const std::string& folder,
                    const fs::path& root) {
  return folder.empty() ? root / dataset.homes.front() : fs::path(folder);
}

// One line that says where the files should be and what to do.
[[noreturn]] void fail_not_found(const DatasetDescriptor& dataset, const std::string& folder,
                                 const fs::path& root) {
  const std::string probe = probe_file(dataset);
  const std::string what = probe.empty() ? "files" : probe;
  if (!folder.empty())
    fail("{}: no {} there (data set {}: {})", folder, what, dataset.name, dataset.title);
  fail("{}: no {} in {} ({}; --data DIR names another data folder)", dataset.name, what,
       first_home(dataset, folder, root).string(), dataset.how_to_get());
}

fs::path generated_test(const DatasetDescriptor& dataset, const std::string& folder,
                        const fs::path& root) {
  return first_home(dataset, folder, root) / "generated-test.safetensors";
}

void read_pictures(const DatasetDescriptor& dataset, int64_t image_size, SourceData& source) {
  const ImageSet images = dataset.list(source.where);
  const bool known = !dataset.shape.empty();
  const int64_t side = image_size > 0 ? image_size : known ? dataset.shape[1] : 0;
  const PictureShape shape = common_shape(images, known ? dataset.shape[0] : 0, side);
  source.class_names = images.class_names;
  source.train = decode_images(images.train, shape);
  source.validation = decode_images(images.validation, shape);
  source.test = decode_images(images.test, shape);
}

// In place of the official test set, which is missing.
void read_generated_test(const DatasetDescriptor& dataset, const std::string& folder,
                         const fs::path& root, SourceData& source) {
  if (const fs::path file = find_generated_test(dataset, folder, root); !file.empty())
    source.test = read_parts(file, dataset.name).test;
  else
    source.missing["test"] = fmt::format(
        "{} is missing ({})", (first_home(dataset, folder, root) / probe_file(dataset)).string(),
        dataset.how_to_get());
}

}  // namespace

fs::path find_files(const DatasetDescriptor& dataset, const std::string& folder,
                    const fs::path& root) {
  check(folder.empty() || fs::is_directory(folder), "{}: there is no such folder", folder);
  std::vector<fs::path> homes;
  if (!folder.empty()) {
    homes.emplace_back(folder);
  } else {
    for (const std::string& home : dataset.homes) homes.push_back(root / home);
  }
  const std::vector<std::string> as_given = {""};
  for (const fs::path& home : homes)
    for (const std::string& inner : dataset.inner.empty() ? as_given : dataset.inner)
      if (const fs::path candidate = inner.empty() ? home : home / inner;
          holds_dataset(dataset, candidate))
        return candidate;
  return {};
}

fs::path find_base_files(const DatasetDescriptor& dataset, const std::string& folder,
                         const fs::path& root) {
  if (dataset.based_on.empty()) return {};
  const DatasetDescriptor& base = find_dataset(dataset.based_on);
  fs::path found = find_files(base, folder, root);
  return found.empty() ? find_files(base, "", root) : found;
}

fs::path find_generated_test(const DatasetDescriptor& dataset, const std::string& folder,
                             const fs::path& root) {
  if (!dataset.generate_test) return {};
  fs::path file = generated_test(dataset, folder, root);
  return fs::is_regular_file(file) ? file : fs::path();
}

fs::path write_generated_test(const DatasetDescriptor& dataset, const fs::path& root,
                              uint64_t seed) {
  check(bool(dataset.generate_test), "{}: no recipe is known to generate its images", dataset.name);
  const fs::path base = find_base_files(dataset, "", root);
  if (base.empty()) fail_not_found(find_dataset(dataset.based_on), "", root);
  SourceData source;
  source.name = dataset.name;
  source.class_names = dataset.class_names;
  source.test = dataset.generate_test(base, seed);
  fs::path file = generated_test(dataset, "", root);
  write_prepared(file, source);
  return file;
}

SourceData read_files(const DatasetOptions& options, const fs::path& root) {
  const DatasetDescriptor& dataset = find_dataset(options.name);
  if (dataset.needs_folder && options.folder.empty())
    throw UsageError(
        fmt::format("data set {}: give --folder DIR (dataset.folder in a recipe), the folder that "
                    "holds the pictures",
                    dataset.name));
  FoundFiles found{find_files(dataset, options.folder, root),
                   find_base_files(dataset, options.folder, root)};
  SourceData source;
  source.name = dataset.name;
  source.class_names = dataset.class_names;
  if (dataset.based_on.empty()) {
    if (found.folder.empty()) fail_not_found(dataset, options.folder, root);
  } else {
    if (found.base.empty()) fail_not_found(find_dataset(dataset.based_on), "", root);
    if (found.folder.empty()) read_generated_test(dataset, options.folder, root, source);
  }
  source.where = found.folder.empty() ? found.base : found.folder;
  if (dataset.list)
    read_pictures(dataset, options.image_size, source);
  else
    dataset.read(found, source);
  return source;
}

SourceData read_source(const DatasetOptions& options, const fs::path& root) {
  const DatasetDescriptor& dataset = find_dataset(options.name);
  const fs::path prepared = find_prepared(dataset.name, options.folder, root);
  if (!prepared.empty()) {
    SourceData source = read_prepared(prepared, dataset.name);
    if (options.image_size == 0 || source.train.images.size(-1) == options.image_size)
      return source;
    check(
        !find_files(dataset, options.folder, root).empty(),
        "{}: holds images of {} pixels; dataset.image_size asks for {}, and the files it was made "
        "from are not there",
        prepared.string(), source.train.images.size(-1), options.image_size);
  }
  return read_files(options, root);
}

}  // namespace remcaps
