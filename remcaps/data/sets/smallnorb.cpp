#include "remcaps/data/formats/gz_reader.h"
#include "remcaps/data/formats/norb.h"
#include "remcaps/data/sets/common.h"

namespace remcaps::sets {

namespace {

constexpr const char* kTrainStem = "smallnorb-5x46789x9x18x6x2x96x96-training-";
constexpr const char* kTestStem = "smallnorb-5x01235x9x18x6x2x96x96-testing-";

void read_smallnorb(const FoundFiles& found, SourceData& source) {
  const auto read = [&](const std::string& stem) {
    return read_small_norb(require_file(found.folder, stem + "dat.mat"),
                           require_file(found.folder, stem + "cat.mat"),
                           plain_or_gz(found.folder, stem + "info.mat"));
  };
  source.train = read(kTrainStem);
  source.test = read(kTestStem);
}

}  // namespace

DatasetDescriptor smallnorb() {
  DatasetDescriptor d{
      .name = "smallnorb",
      .title = "smallNORB (stereo)",
      .class_names = {"four-legged animal", "human figure", "airplane", "truck", "car"},
      .shape = {2, 96, 96},
      .train_images = 24'300,
      .test_images = 24'300,
      .homes = {"smallnorb", "smallNORB", "norb-v1.0-small"}};
  const std::string train = kTrainStem;
  const std::string test = kTestStem;
  constexpr int64_t kDat = 447'897'624, kCat = 97'220, kInfo = 388'820;
  d.files = {{train + "dat.mat", kDat},
             {train + "cat.mat", kCat},
             {train + "info.mat", kInfo,
              "6b4075d3800ba0c6fa8c46a02f672572abe7b93f7ed82fb7668354a99ef03306"},
             {test + "dat.mat", kDat},
             {test + "cat.mat", kCat},
             {test + "info.mat", kInfo}};
  // Checksums of the six .gz files, in the order above.
  const std::vector<std::string> sums = {
      "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
      "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
      "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
      "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
      "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
      "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2"};
  Provider official{"official", {}};
  for (size_t i = 0; i < d.files.size(); ++i)
    official.downloads.push_back(
        {"https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/" + d.files[i].path + ".gz", sums[i],
         Unpack::kGunzip, d.files[i].path});
  d.providers = {official};
  d.terms = "research only, no commercial use";
  d.augment.resize = 64;
  d.augment.crop = 48;
  d.augment.brightness_add = 2.0;
  d.augment.contrast = {0.5, 1.5};
  d.augment.jitter = "normalized";
  d.augment.mean = {0.7522, 0.7572};
  d.augment.std = {0.1774, 0.1736};
  d.protocols = {{"azimuth", {0, 20, 40, 300, 320, 340}}, {"elevation", {30, 35, 40}}};
  d.attribute_files = "-info.mat";
  d.read = read_smallnorb;
  return d;
}

}  // namespace remcaps::sets
