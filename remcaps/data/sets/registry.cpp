// The list of all data sets. To add one: a file in this folder, and its name twice below.
#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/data/descriptor.h"

namespace remcaps {
namespace sets {

DatasetDescriptor mnist();
DatasetDescriptor fashion_mnist();
DatasetDescriptor cifar10();
DatasetDescriptor svhn();
DatasetDescriptor smallnorb();
DatasetDescriptor affnist();
DatasetDescriptor tiny_imagenet();
DatasetDescriptor dogs_vs_cats();
DatasetDescriptor imagenette();
DatasetDescriptor folder();

}  // namespace sets

const std::vector<DatasetDescriptor>& datasets() {
  static const std::vector<DatasetDescriptor> all = {
      sets::mnist(),      sets::fashion_mnist(), sets::cifar10(),       sets::svhn(),
      sets::smallnorb(),  sets::affnist(),       sets::tiny_imagenet(), sets::dogs_vs_cats(),
      sets::imagenette(), sets::folder()};
  return all;
}

const DatasetDescriptor& find_dataset(const std::string& name) {
  for (const DatasetDescriptor& dataset : datasets())
    if (dataset.name == name) return dataset;
  throw UsageError(fmt::format("unknown data set {}{}", name, suggestion(name, dataset_names())));
}

}  // namespace remcaps
