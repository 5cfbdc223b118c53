#include "remcaps/torch/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

TEST(TensorFile, ReadsBackEveryTypeShapeAndMetadata) {
  testing::TemporaryFolder folder;
  TensorMap tensors = {{"bytes", torch::arange(7, torch::kUInt8)},
                       {"floats", torch::randn({3, 5})},
                       {"doubles", torch::randn({2}, torch::kFloat64)},
                       {"half", torch::randn({4}).to(torch::kFloat16)},
                       {"bfloat", torch::randn({4}).to(torch::kBFloat16)},
                       {"ints", torch::arange(4, torch::kInt64)},
                       {"flags", torch::tensor({true, false})},
                       {"scalar", torch::tensor(3.5f)},
                       {"empty", torch::empty({0, 4})},
                       {"strided", torch::randn({4, 6}).t()}};
  save_safetensors(folder / "a.safetensors", tensors, {{"model", "dr-capsnet"}});
  const TensorFile file(folder / "a.safetensors");
  EXPECT_EQ(file.metadata().at("model"), "dr-capsnet");
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.load(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(file.load(name), tensor)) << name;
    EXPECT_TRUE(torch::equal(file.view(name), tensor)) << name;
  }
}

TEST(TensorFile, AViewOutlivesItsFile) {
  testing::TemporaryFolder folder;
  const auto tensor = torch::randn({100});
  save_safetensors(folder / "a.safetensors", {{"x", tensor}});
  torch::Tensor view;
  {
    const TensorFile file(folder / "a.safetensors");
    view = file.view("x");
  }
  EXPECT_TRUE(torch::equal(view, tensor));
}

TEST(TensorFile, AViewOfUnalignedBytesIsACopy) {
  testing::TemporaryFolder folder;
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_atomically(folder / "a.safetensors", bytes + header + std::string("\1\0\0\x80\x3f", 5));
  const TensorFile file(folder / "a.safetensors");
  EXPECT_EQ(file.view("b").item<float>(), 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.view("b").data_ptr()) % 4, 0U);
}

TEST(TensorFile, TypesThatTheFormatDoesNotKnowAreNamed) {
  testing::TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  try {
    save_safetensors(path, {{"x", torch::zeros({1}, torch::kComplexFloat)}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), path.string() + ": tensor x has a type safetensors does not know");
  }
}

}  // namespace
}  // namespace remcaps
