#include "remcaps/data/sets/common.h"

namespace remcaps::sets {

DatasetDescriptor fashion_mnist() {
  DatasetDescriptor d{.name = "fashion-mnist",
                      .title = "Fashion-MNIST",
                      .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                      "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"},
                      .shape = {1, 28, 28},
                      .train_images = 60'000,
                      .test_images = 10'000,
                      .homes =
                          // Debian's package dataset-fashion-mnist installs the last one.
                      {"fashion-mnist", "FashionMNIST", "/usr/share/datasets/fashion-mnist"},
                      .inner = {"", "raw"}};
  d.files = {
      {"train-images-idx3-ubyte", 47'040'016,
       "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
      {"train-labels-idx1-ubyte", 60'008,
       "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
      {"t10k-images-idx3-ubyte", 7'840'016,
       "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
      {"t10k-labels-idx1-ubyte", 10'008,
       "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
  };
  d.exact = true;
  d.providers = {
      idx_provider("official", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/")};
  d.by_hand = "on Debian: apt-get install dataset-fashion-mnist";
  d.terms = "MIT";
  d.on_black = true;
  d.augment.shift = 2;
  d.augment.flip = true;
  d.augment.mean = {0.286};
  d.augment.std = {0.3205};
  d.validation_images = 5'500;
  d.read = read_idx_parts;
  return d;
}

}  // namespace remcaps::sets
