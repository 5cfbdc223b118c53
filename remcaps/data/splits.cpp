#include "remcaps/data/splits.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

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

// The order in which each class is spread evenly: any beginning of it has every class in about its
// proportion.
std::vector<int64_t> spread_by_class(const std::vector<int64_t>& order, const Dataset& dataset) {
  const torch::Tensor labels = dataset.labels.contiguous();
  const auto label_of = [&](int64_t image) { return labels.data_ptr<int64_t>()[image]; };
  std::map<int64_t, int64_t> sizes, seen;
  for (const int64_t image : order) ++sizes[label_of(image)];
  std::vector<std::pair<double, int64_t>> placed;  // where in its class an image stands, 0 to 1
  for (const int64_t image : order) {
    const int64_t label = label_of(image);
    placed.emplace_back(
        (static_cast<double>(seen[label]++) + 0.5) / static_cast<double>(sizes[label]), image);
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int64_t> spread;
  for (const auto& [place, image] : placed) spread.push_back(image);
  return spread;
}

// `count` images spread over a set that may be sorted by class, in their own order.
Dataset sample(const Dataset& dataset, int64_t count) {
  if (count <= 0 || count >= dataset.size()) return dataset;
  std::vector<int64_t> chosen = numpy_shuffle(dataset.size(), kSplitSeed);
  chosen.resize(static_cast<size_t>(count));
  std::sort(chosen.begin(), chosen.end());
  return dataset.select(indices(chosen, 0, count));
}

// The images seen from a familiar viewpoint (or from any other), in their own order.
Dataset seen_from(const Dataset& dataset, const ViewProtocol& protocol, bool familiar,
                  const std::string& name) {
  const torch::Tensor views = dataset.attributes.at(protocol.attribute).contiguous();
  std::vector<int64_t> chosen;
  const auto* view = views.data_ptr<int64_t>();
  for (int64_t i = 0; i < dataset.size(); ++i)
    if (protocol.familiar.contains(view[i]) == familiar) chosen.push_back(i);
  check(!chosen.empty(), "{}: no image has {} {}", name, familiar ? "a familiar" : "a novel",
        protocol.attribute);
  return dataset.select(indices(chosen, 0, static_cast<int64_t>(chosen.size())));
}

const ViewProtocol& find_protocol(const DatasetDescriptor& descriptor, const std::string& name) {
  for (const ViewProtocol& protocol : descriptor.protocols)
    if (protocol.attribute == name) return protocol;
  std::vector<std::string> others;
  for (const DatasetDescriptor& other : datasets())
    if (!other.protocols.empty()) others.push_back(other.name);
  throw UsageError(fmt::format("dataset.protocol is {}; only {} has viewpoint protocols", name,
                               fmt::join(others, ", ")));
}

void apply_protocol(const DatasetDescriptor& descriptor, const ViewProtocol& protocol,
                    SourceData& source, DataSplits& splits) {
  for (const auto& [part, name] :
       {std::pair<const Dataset*, const char*>{&source.train, "training"},
        {&source.test, "testing"}})
    check(part->attributes.contains(protocol.attribute),
          "{}: protocol {} needs the poses of the {} images, but their {} file is not in {}",
          source.name, protocol.attribute, name, descriptor.attribute_files, source.where.string());
  source.train = seen_from(source.train, protocol, true, source.name);
  splits.extra["familiar"] = seen_from(source.test, protocol, true, source.name);
  source.test = seen_from(source.test, protocol, false, source.name);
}

int64_t validation_count(const DatasetDescriptor& descriptor, const DatasetOptions& options,
                         int64_t n) {
  if (options.validation < 0) {
    const bool complete = n >= descriptor.train_images;
    return complete && descriptor.validation_images > 0 ? descriptor.validation_images : n / 10;
  }
  check(options.validation < n, "{}: dataset.validation is {}; the training set has {} images",
        descriptor.name, with_commas(options.validation), with_commas(n));
  return options.validation;
}

}  // namespace

DataSplits make_splits(SourceData source, const DatasetOptions& options) {
  DataSplits splits;
  splits.name = source.name;
  splits.class_names = source.class_names;
  splits.missing = source.missing;
  const DatasetDescriptor& descriptor = find_dataset(source.name);
  if (!options.protocol.empty())
    apply_protocol(descriptor, find_protocol(descriptor, options.protocol), source, splits);

  if (source.validation.size() > 0) {
    splits.train = std::move(source.train);
    splits.validation = sample(source.validation, options.validation);
    if (options.limit_train > 0) splits.train = sample(splits.train, options.limit_train);
  } else {
    const int64_t n = source.train.size();
    std::vector<int64_t> order = numpy_shuffle(n, kSplitSeed);
    if (descriptor.splits_by_class) order = spread_by_class(order, source.train);
    const int64_t validate = validation_count(descriptor, options, n);
    // If the data set has no test images of its own, another tenth of the images tests.
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
  if (!descriptor.validation_alias.empty())
    splits.extra[descriptor.validation_alias] = splits.validation;
  return splits;
}

}  // namespace remcaps
