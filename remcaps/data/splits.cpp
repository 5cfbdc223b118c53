#include "remcaps/data/splits.h"

#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/random.h"
#include "remcaps/base/text.h"

namespace remcaps {
namespace {

constexpr uint32_t kSplitSeed = 0;  // the published code's

torch::Tensor indices(const std::vector<int64_t>& values, int64_t first, int64_t count) {
  return torch::tensor(std::vector<int64_t>(values.begin() + first, values.begin() + first + count),
                       torch::kInt64);
}

// `count` images spread over a set that may be sorted by class, in their own order.
Dataset sample(const Dataset& dataset, int64_t count) {
  if (count <= 0 || count >= dataset.size()) return dataset;
  std::vector<int64_t> chosen = numpy_shuffle(dataset.size(), kSplitSeed);
  chosen.resize(static_cast<size_t>(count));
  std::sort(chosen.begin(), chosen.end());
  return dataset.select(indices(chosen, 0, count));
}

// Viewpoints the paper trains on; all others are novel.
const std::set<int64_t>& familiar_views(const std::string& protocol) {
  static const std::set<int64_t> azimuths = {0, 20, 40, 300, 320, 340};
  static const std::set<int64_t> elevations = {30, 35, 40};
  return protocol == "azimuth" ? azimuths : elevations;
}

// The images seen from a familiar viewpoint (or from any other), in their own order.
Dataset seen_from(const Dataset& dataset, const std::string& protocol, bool familiar) {
  const torch::Tensor views = dataset.attributes.at(protocol).contiguous();
  const auto& wanted = familiar_views(protocol);
  std::vector<int64_t> chosen;
  const auto* view = views.data_ptr<int64_t>();
  for (int64_t i = 0; i < dataset.size(); ++i)
    if ((wanted.count(view[i]) != 0) == familiar) chosen.push_back(i);
  check(!chosen.empty(), "smallnorb: no image has {} {}", familiar ? "a familiar" : "a novel",
        protocol);
  return dataset.select(indices(chosen, 0, static_cast<int64_t>(chosen.size())));
}

void apply_protocol(SourceData& source, const std::string& protocol, DataSplits& splits) {
  if (source.name != "smallnorb")
    throw UsageError(
        fmt::format("dataset.protocol is {}; only smallnorb has viewpoint protocols", protocol));
  for (const auto& [part, name] :
       {std::pair<const Dataset*, const char*>{&source.train, "training"},
        {&source.test, "testing"}})
    check(
        part->attributes.count(protocol) != 0,
        "smallnorb: protocol {} needs the poses of the {} images, but their -info.mat file is not "
        "in {}",
        protocol, name, source.where.string());
  source.train = seen_from(source.train, protocol, true);
  splits.extra["familiar"] = seen_from(source.test, protocol, true);
  source.test = seen_from(source.test, protocol, false);
}

int64_t validation_count(const SourceData& source, const DatasetOptions& options, int64_t n) {
  if (options.validation < 0) return default_validation(source.name, n);
  check(options.validation < n, "{}: dataset.validation is {}; the training set has {} images",
        source.name, with_commas(options.validation), with_commas(n));
  return options.validation;
}

}  // namespace

int64_t default_validation(const std::string& name, int64_t n) {
  if (name == "mnist" || name == "fashion-mnist" || name == "cifar10")
    return n >= 50'000 ? 5'500 : n / 10;
  return n / 10;  // Tiny ImageNet's published 10,000 of 100,000 among them
}

DataSplits make_splits(SourceData source, const DatasetOptions& options) {
  DataSplits splits;
  splits.name = source.name;
  splits.class_names = source.class_names;
  splits.missing = source.missing;
  if (!options.protocol.empty()) apply_protocol(source, options.protocol, splits);

  if (source.validation.size() > 0) {
    splits.train = std::move(source.train);
    splits.validation = sample(source.validation, options.validation);
    if (options.limit_train > 0) splits.train = sample(splits.train, options.limit_train);
  } else {
    const int64_t n = source.train.size();
    const std::vector<int64_t> order = numpy_shuffle(n, kSplitSeed);
    const int64_t validate = validation_count(source, options, n);
    // Without a test set of its own (Dogs vs. Cats) another tenth of the images tests.
    const bool own_test = source.test.size() > 0 || splits.missing.count("test") != 0;
    const int64_t test = own_test ? 0 : n / 10;
    int64_t train = n - validate - test;
    check(train > 0, "{}: {} images; {} validate and {} test, none is left to train on",
          source.name, with_commas(n), with_commas(validate), with_commas(test));
    if (options.limit_train > 0) train = std::min(train, options.limit_train);
    splits.validation = source.train.select(indices(order, 0, validate));
    if (test > 0) source.test = source.train.select(indices(order, validate, test));
    splits.train = source.train.select(indices(order, validate + test, train));
  }
  splits.test = sample(source.test, options.limit_test);
  for (auto& [name, part] : splits.extra) part = sample(part, options.limit_test);
  if (!options.protocol.empty()) splits.extra["novel"] = splits.test;
  if (source.name == "affnist") splits.extra["expanded-test"] = splits.validation;
  return splits;
}

}  // namespace remcaps
