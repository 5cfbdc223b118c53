#include "remcaps/torch/compressed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

class Compressed : public ::testing::Test {
 protected:
  TensorMap through_a_file(const TensorMap& tensors) const {
    const CompressedTensors compressed = compress_tensors(tensors);
    save_safetensors(path_, compressed.tensors, compressed.metadata);
    return load_decompressed(SafetensorsFile(path_));
  }

  std::string error_of(const CompressedTensors& compressed) const {
    save_safetensors(path_, compressed.tensors, compressed.metadata);
    try {
      load_decompressed(SafetensorsFile(path_));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "compressed.safetensors";
};

TEST_F(Compressed, EveryShapeAndSparsityComesBackInHalfPrecision) {
  torch::manual_seed(4);
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {}, {1}, {7}, {8}, {9}, {3, 5}, {4, 1, 3, 3}, {33, 10, 8, 16}}) {
    for (const double sparsity : {0.0, 0.1, 0.5, 0.99, 1.0}) {
      const Tensor dense = torch::randn(shape);
      const Tensor weight = torch::where(torch::rand(shape) < sparsity, torch::zeros({}), dense);
      const TensorMap back = through_a_file({{"w", weight}});
      ASSERT_EQ(back.size(), 1u);
      const Tensor& found = back.at("w");
      EXPECT_EQ(found.scalar_type(), torch::kFloat32);
      EXPECT_TRUE(torch::equal(found, weight.to(torch::kFloat16).to(torch::kFloat32)))
          << "shape [" << shape << "], sparsity " << sparsity;
    }
  }
}

TEST_F(Compressed, OtherTypesStayAsTheyAre) {
  const TensorMap back = through_a_file({{"steps", torch::tensor({1, 0, 3}, torch::kInt64)}});
  EXPECT_TRUE(torch::equal(back.at("steps"), torch::tensor({1, 0, 3}, torch::kInt64)));
}

TEST_F(Compressed, APrunedTensorTakesABitPerPlaceAndTwoBytesPerWeight) {
  Tensor weight = torch::zeros({80, 100});
  weight.slice(0, 0, 10).fill_(0.5);
  const CompressedTensors compressed = compress_tensors({{"w", weight}});
  EXPECT_EQ(compressed.tensors.at("w.bits").nbytes(), 1000u);
  EXPECT_EQ(compressed.tensors.at("w.values").nbytes(), 2000u);
}

TEST_F(Compressed, AValueBeyondHalfPrecisionIsRefused) {
  try {
    compress_tensors({{"w", torch::tensor({1.0F, 70000.0F})}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("w: a value of 70000 does not fit half precision"));
  }
}

TEST_F(Compressed, PartsThatDoNotGoTogetherAreNamed) {
  Tensor weight = torch::zeros({3, 5});
  weight[1][2] = 2;
  const CompressedTensors whole = compress_tensors({{"w", weight}});
  CompressedTensors missing = whole, values = whole, bits = whole, beyond = whole, shape = whole,
                    text = whole;
  missing.tensors.erase("w.values");
  EXPECT_THAT(error_of(missing), HasSubstr("its packed tensor w has no w.values"));
  values.tensors["w.values"] = torch::ones({2}).to(torch::kFloat16);
  EXPECT_THAT(error_of(values), HasSubstr("w has 2 values; its bitmap marks 1"));
  bits.tensors["w.bits"] = torch::zeros({3}, torch::kUInt8);
  EXPECT_THAT(error_of(bits), HasSubstr("the bitmap of w has 3 bytes; expected 2"));
  beyond.tensors["w.bits"] = torch::tensor({0, 128}, torch::kUInt8);  // the 16th of 15 places
  EXPECT_THAT(error_of(beyond), HasSubstr("compressed.safetensors: w has 1 values"));
  shape.metadata["packed"] = R"({"w": [4611686018427387904, 4]})";
  EXPECT_THAT(error_of(shape), HasSubstr("w cannot have the shape"));
  text.metadata["packed"] = "[1";
  EXPECT_THAT(error_of(text), HasSubstr("does not give shapes by name"));
}

// A released network, written again from what was read, is the same file.
TEST_F(Compressed, AReleasedFileIsWrittenAsItWasRead) {
  const std::filesystem::path models(REMCAPS_MODELS_FOLDER);
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(models)) {
    if (entry.path().extension() != ".safetensors" || entry.file_size() > 1 << 20) continue;
    const SafetensorsFile file(entry.path());
    const CompressedTensors compressed = compress_tensors(load_decompressed(file));
    EXPECT_EQ(compressed.metadata.at("packed"), file.metadata().at("packed"));
    save_safetensors(path_, compressed.tensors, file.metadata());
    EXPECT_TRUE(read_file(path_) == read_file(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace remcaps
