#include "remcaps/data/formats/prepared.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* kFormat = "remcaps dataset 1";
constexpr const char* kAttribute = ".attribute.";
constexpr const char* kNote = ".note";

void add_part(TensorMap& tensors, Metadata& metadata, const std::string& part,
              const Dataset& dataset) {
  if (dataset.size() == 0) return;
  if (!dataset.note.empty()) metadata[part + kNote] = dataset.note;
  tensors[part + ".images"] = dataset.images;
  tensors[part + ".labels"] = dataset.labels;
  for (const auto& [name, values] : dataset.attributes) tensors[part + kAttribute + name] = values;
}

Dataset read_part(const TensorFile& file, const std::string& part, int64_t classes) {
  Dataset dataset;
  const std::string path = file.path().string();
  if (!file.contains(part + ".images")) return dataset;
  if (const auto note = file.metadata().find(part + kNote); note != file.metadata().end())
    dataset.note = printable(note->second);
  dataset.images = file.view(part + ".images");
  dataset.labels = file.load(part + ".labels");
  check(dataset.images.scalar_type() == torch::kUInt8 && dataset.images.dim() == 4,
        "{}: {}.images is [{}]; expected bytes of [N, C, H, W]", path, part,
        fmt::join(dataset.images.sizes(), ", "));
  check(dataset.labels.scalar_type() == torch::kInt64 && dataset.labels.dim() == 1 &&
            dataset.labels.size(0) == dataset.images.size(0),
        "{}: {}.labels is [{}]; expected [{}]", path, part, fmt::join(dataset.labels.sizes(), ", "),
        dataset.images.size(0));
  check_labels(file.path(), dataset.labels, classes);
  const std::string prefix = part + kAttribute;
  for (const std::string& name : file.names())
    if (name.rfind(prefix, 0) == 0) {
      const torch::Tensor values = file.load(name);
      check(values.scalar_type() == torch::kInt64 && values.sizes() == dataset.labels.sizes(),
            "{}: {} is [{}]; expected [{}]", path, name, fmt::join(values.sizes(), ", "),
            dataset.labels.size(0));
      dataset.attributes[name.substr(prefix.size())] = values;
    }
  return dataset;
}

}  // namespace

void write_prepared(const fs::path& path, const SourceData& source) {
  TensorMap tensors;
  Metadata metadata = {{"format", kFormat},
                       {"name", source.name},
                       {"class_names", json_text(source.class_names)},
                       {"missing", json_text(source.missing)}};
  add_part(tensors, metadata, "train", source.train);
  add_part(tensors, metadata, "validation", source.validation);
  add_part(tensors, metadata, "test", source.test);
  if (path.has_parent_path()) make_folder(path.parent_path());
  save_safetensors(path, tensors, metadata);
}

SourceData read_parts(const fs::path& path, const std::string& name) {
  const TensorFile file(path);
  const auto value = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  check(value("format") == kFormat,
        "{}: its format is \"{}\"; expected \"{}\" (remcaps data prepare)", path.string(),
        value("format"), kFormat);
  check(value("name") == name, "{}: holds the data set {}; expected {}", path.string(),
        value("name"), name);
  SourceData source;
  source.name = name;
  source.where = path;
  try {
    source.class_names = json::parse(value("class_names")).get<std::vector<std::string>>();
    source.missing = json::parse(value("missing")).get<std::map<std::string, std::string>>();
  } catch (const json::exception&) {
    fail(
        "{}: damaged metadata: its class_names are no list of names, or its missing no texts by "
        "name",
        path.string());
  }
  const auto classes = static_cast<int64_t>(source.class_names.size());
  source.train = read_part(file, "train", classes);
  source.validation = read_part(file, "validation", classes);
  source.test = read_part(file, "test", classes);
  return source;
}

SourceData read_prepared(const fs::path& path, const std::string& name) {
  SourceData source = read_parts(path, name);
  check(source.train.size() > 0, "{}: has no training images", path.string());
  return source;
}

fs::path find_prepared(const std::string& name, const std::string& folder, const fs::path& root) {
  if (!folder.empty()) {
    if (fs::is_regular_file(folder)) return folder;
    const fs::path inside = fs::path(folder) / "prepared.safetensors";
    return fs::is_regular_file(inside) ? inside : fs::path();
  }
  for (const fs::path& path :
       {root / (name + ".safetensors"), root / name / "prepared.safetensors"})
    if (fs::is_regular_file(path)) return path;
  return {};
}

fs::path default_prepared(const std::string& name, const std::string& folder,
                          const fs::path& root) {
  return folder.empty() ? root / (name + ".safetensors")
                        : fs::path(folder) / "prepared.safetensors";
}

}  // namespace remcaps
