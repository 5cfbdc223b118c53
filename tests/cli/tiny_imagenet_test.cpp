// Tiny ImageNet's networks, from an encoder that is trained first, on a folder in its layout.
#include "remcaps/torch/safetensors.h"
#include "tests/cli/cli_fixture.h"
#include "tests/data/fixtures.h"

namespace remcaps::testing {
namespace {

using ::testing::HasSubstr;

class TinyImageNet : public CliTest {
 protected:
  void SetUp() override {
    const auto home = folder_ / "data" / "tiny-imagenet-200";
    std::string annotations;
    for (const int number : {1, 2}) {
      const std::string wnid = fmt::format("n0000000{}", number);
      for (int i = 0; i < 8; ++i)
        write_jpeg(home / "train" / wnid / "images" / fmt::format("{}_{}.JPEG", wnid, i),
                   plain_image(3, 64, 64, 100 * number + i));
      const std::string name = fmt::format("val_{}.JPEG", number);
      write_jpeg(home / "val" / "images" / name, plain_image(3, 64, 64, 100 * number));
      annotations += fmt::format("{}\t{}\t0\t0\t63\t63\n", name, wnid);
    }
    write_bytes(home / "val" / "val_annotations.txt", annotations);
    write_bytes(home / "wnids.txt", "n00000002\nn00000001\n");
    write_bytes(home / "words.txt", "n00000001\tbright\nn00000002\tbrighter, brightest\n");
  }
};

TEST_F(TinyImageNet, CapsulesStartFromTheEncoderThatWasTrainedFirst) {
  std::vector<std::string> words = {"reproduce", "tiny-imagenet",
                                    "--data",    "data",
                                    "--device",  "cpu",
                                    "--only",    "tiny-imagenet/resnet18",
                                    "--only",    "tiny-imagenet/resnet18-capsnet"};
  for (const char* setting :
       {"dataset.image_size=32", "dataset.augment.resize=0", "dataset.augment.shift=2",
        "dataset.validation=4", "train.batch=4", "train.epochs=1", "metrics.every=0"})
    words.insert(words.end(), {"--set", setting});
  const ProgramResult result = remcaps(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("starts from tiny-imagenet/resnet18"));

  const auto weights = [&](const char* recipe) {
    return TensorFile(folder_ / "runs/tiny-imagenet" / recipe / "seed-42/best.safetensors")
        .load_all();
  };
  const TensorMap encoder = weights("resnet18"), capsules = weights("resnet18-capsnet");
  EXPECT_EQ(encoder.count("fc.weight"), 1u);
  int64_t shared = 0;
  for (const auto& [name, tensor] : capsules) {
    if (!name.starts_with("backbone.")) continue;
    EXPECT_TRUE(tensor.equal(encoder.at(name))) << name << ": it is frozen";
    ++shared;
  }
  EXPECT_GE(shared, 100);  // 20 convolutions, and four tensors of each of their norms

  // The encoder alone has an accuracy, but no parse trees.
  const std::string run = "runs/tiny-imagenet/resnet18/seed-42";
  const ProgramResult evaluated = remcaps({"eval", run, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const auto json = nlohmann::json::parse(evaluated.out);
  EXPECT_TRUE(json.contains("accuracy"));
  EXPECT_FALSE(json.contains("entropy"));
  const std::string picture = "data/tiny-imagenet-200/val/images/val_1.JPEG";
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"entropy", run},
                                             {"entropy", run, "--levels", "auto"},
                                             {"levels", run},
                                             {"couplings", run, "--out", "couplings.safetensors"},
                                             {"explain", run, picture},
                                             {"prune", run, "--out", "pruned.safetensors"}})
    expect_one_line(remcaps(command), 1, "resnet18 has no routing layer");
}

}  // namespace
}  // namespace remcaps::testing
