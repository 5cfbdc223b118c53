#include "remcaps/data/dataset.h"

#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/base/text.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/data/source.h"
#include "remcaps/data/splits.h"
#include "remcaps/torch/runtime.h"

namespace remcaps {
namespace fs = std::filesystem;

Dataset Dataset::select(const torch::Tensor& indices) const {
  Dataset chosen;
  chosen.note = note;
  chosen.images = images.index_select(0, indices);
  chosen.labels = labels.index_select(0, indices);
  for (const auto& [name, values] : attributes)
    chosen.attributes[name] = values.index_select(0, indices);
  if (!names.empty())
    for (int64_t i = 0; i < indices.size(0); ++i)
      chosen.names.push_back(names.at(static_cast<size_t>(indices[i].item<int64_t>())));
  return chosen;
}

const Dataset& DataSplits::split(const std::string& name) const {
  const Dataset* found = nullptr;
  if (name == "train") found = &train;
  if (name == "validation") found = &validation;
  if (name == "test") found = &test;
  const auto other = extra.find(name);
  if (other != extra.end()) found = &other->second;
  if (found != nullptr && found->size() > 0) return *found;
  const auto reason = missing.find(name);
  check(reason == missing.end(), "{}: split {}: {}", this->name, name,
        reason == missing.end() ? "" : reason->second);
  if (found != nullptr) fail("{}: split {} has no images", this->name, name);
  throw UsageError(
      fmt::format("{} has no split {}{}", this->name, name, suggestion(name, split_names())));
}

std::vector<std::string> DataSplits::split_names() const {
  std::vector<std::string> names;
  for (const auto& [name, part] : {std::pair<const char*, const Dataset*>{"train", &train},
                                   {"validation", &validation},
                                   {"test", &test}})
    if (part->size() > 0) names.emplace_back(name);
  for (const auto& [name, part] : extra)
    if (part.size() > 0) names.push_back(name);
  return names;
}

void bind(ConfigSection& section, AugmentOptions& options) {
  constexpr int64_t kMaxSide = 4096;
  section.key("pad", options.pad, {0, kMaxSide});
  section.key("resize", options.resize, {0, kMaxSide});
  section.key("antialias", options.antialias);
  section.key("crop", options.crop, {0, kMaxSide});
  section.key("shift", options.shift, {0, kMaxSide});
  section.key("flip", options.flip);
  section.key("rotation", options.rotation, {0.0, 180.0});
  section.key("brightness", options.brightness, {0.0, 1.0});
  section.key("brightness_add", options.brightness_add, {0.0, 10.0});
  section.key("contrast", options.contrast, {0.0, 10.0});
  section.key("jitter", options.jitter, std::vector<std::string>{"pixels", "normalized"});
  section.key("mean", options.mean, {-1000.0, 1000.0});
  section.key("std", options.std, {1e-6, 1000.0});
  section.key("standardize", options.standardize);
  const auto list = [](const std::vector<double>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
  };
  if (options.contrast.size() != 2 || options.contrast[0] > options.contrast[1])
    section.reject("contrast", list(options.contrast), "[lowest, highest]");
  if (options.mean.empty() || options.std.empty())
    section.reject(options.mean.empty() ? "mean" : "std", "[]", "one number, or one per channel");
}

void bind(ConfigSection& section, DatasetOptions& options) {
  section.key("name", options.name, dataset_names());
  section.key("folder", options.folder);
  std::vector<std::string> protocols = {""};
  for (const DatasetDescriptor& dataset : datasets())
    for (const ViewProtocol& protocol : dataset.protocols) protocols.push_back(protocol.attribute);
  section.key("protocol", options.protocol, protocols);
  section.key("image_size", options.image_size, {0, 4096});
  section.key("validation", options.validation, {-1, int64_t{1} << 40});
  section.key("limit_train", options.limit_train, {0, int64_t{1} << 40});
  section.key("limit_test", options.limit_test, {0, int64_t{1} << 40});
  options.augment = default_augment(options.name);
  ConfigSection augment = section.section("augment");
  bind(augment, options.augment);
  augment.finish();
  section.adopt("augment", augment);
}

DataSplits load_dataset(const DatasetOptions& options, const fs::path& data_root) {
  return with_enough_memory("data set " + options.name,
                            [&] { return make_splits(read_source(options, data_root), options); });
}

fs::path data_root(const std::string& from_command_line) {
  if (!from_command_line.empty()) return from_command_line;
  if (const char* given = std::getenv("REMCAPS_DATA"); given != nullptr && *given != '\0')
    return given;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    const passwd* user = ::getpwuid(::getuid());
    home = user == nullptr ? nullptr : user->pw_dir;
  }
  check(home != nullptr && *home != '\0',
        "no data folder: give --data DIR or set REMCAPS_DATA (HOME is not set either)");
  return fs::path(home) / ".cache" / "remcaps";
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetDescriptor& dataset : datasets()) names.push_back(dataset.name);
  return names;
}

AugmentOptions default_augment(const std::string& dataset_name) {
  return find_dataset(dataset_name).augment;
}

void check_labels(const fs::path& source, const torch::Tensor& labels, int64_t classes) {
  const torch::Tensor bad = (labels < 0).logical_or(labels >= classes).nonzero();
  if (bad.size(0) == 0) return;
  const auto first = bad[0][0].item<int64_t>();
  fail("{}: image {} has the label {}; expected 0 to {}", source.string(), with_commas(first),
       labels[first].item<int64_t>(), classes - 1);
}

}  // namespace remcaps
