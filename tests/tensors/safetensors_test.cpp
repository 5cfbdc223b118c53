#include "remcaps/tensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::filesystem::path& path) {
  try {
    SafetensorsFile file(path);
    file.load_all();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string file_with_header(const std::string& header, size_t data_bytes) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header + std::string(data_bytes, '\1');
}

TEST(Safetensors, ReadsBackEveryTypeShapeAndMetadata) {
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
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.metadata().at("model"), "dr-capsnet");
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.load(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(file.load(name), tensor)) << name;
    EXPECT_TRUE(torch::equal(file.view(name), tensor)) << name;
  }
}

TEST(Safetensors, AViewOutlivesItsFile) {
  testing::TemporaryFolder folder;
  const auto tensor = torch::randn({100});
  save_safetensors(folder / "a.safetensors", {{"x", tensor}});
  torch::Tensor view;
  {
    const SafetensorsFile file(folder / "a.safetensors");
    view = file.view("x");
  }
  EXPECT_TRUE(torch::equal(view, tensor));
}

TEST(Safetensors, ATruncatedFileIsRejectedAtEveryLength) {
  testing::TemporaryFolder folder;
  save_safetensors(folder / "a.safetensors", {{"x", torch::randn({8})}, {"y", torch::randn({3})}});
  const std::string whole = read_file(folder / "a.safetensors");
  for (size_t length = 0; length < whole.size(); ++length) {
    write_atomically(folder / "cut.safetensors", whole.substr(0, length));
    EXPECT_THAT(error_of(folder / "cut.safetensors"), HasSubstr("cut.safetensors: ")) << length;
  }
}

TEST(Safetensors, HostileHeadersAreRejected) {
  testing::TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  const auto reject = [&](const std::string& header, size_t data, const char* message) {
    write_atomically(path, file_with_header(header, data));
    EXPECT_THAT(error_of(path), HasSubstr(message)) << header;
  };
  reject("[1, 2]  ", 0, "not a JSON object");
  reject("{\"x\": {\"dtype\": \"F32\"", 0, "the header is not JSON (byte 30 of the file)");
  reject("{\"x\xff\": 1}", 0, "the header is not JSON (byte 12 of the file)");
  reject(R"({"x":{"dtype":"F32","shape":[1]}})", 0,
         "broken header: x is not a tensor's dtype, shape and data_offsets");
  reject(R"({"x":7})", 0, "broken header: x is not a tensor's dtype, shape and data_offsets");
  reject(R"({"__metadata__":{"a":1}})", 0, "__metadata__ is not a text for every key");
  reject(R"({"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "unknown type F99");
  reject(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
         "more than the file holds");
  reject(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 4, "truncated");
  reject(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "cover 4 of 8");
  reject(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4,
         "more than the file holds");
  reject(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
         "more than the file holds");
  reject(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 2, "needs 2 bytes, has 1");
}

TEST(Safetensors, TensorsThatOverlapAreRejectedThoughTheirBytesAddUp) {
  testing::TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  const auto with_offsets = [&](const std::string& x, const std::string& y, const std::string& z) {
    write_atomically(
        path,
        file_with_header(fmt::format(R"({{"x":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}},)"
                                     R"("y":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}},)"
                                     R"("z":{{"dtype":"U8","shape":[0],"data_offsets":[{}]}}}})",
                                     x, y, z),
                         8));
    return error_of(path);
  };
  EXPECT_EQ(with_offsets("4,8", "0,4", "4,4"), "no error") << "in any order";
  EXPECT_THAT(with_offsets("0,4", "0,4", "0,0"), HasSubstr("tensor y lies at bytes [0, 4]"));
  EXPECT_THAT(with_offsets("0,4", "2,6", "8,8"), HasSubstr("tensor y lies at bytes [2, 6]"));
  EXPECT_THAT(with_offsets("4,8", "4,8", "0,0"), HasSubstr("tensor x lies at bytes [4, 8]"));
}

TEST(Safetensors, AMissingTensorSuggestsTheNearestName) {
  testing::TemporaryFolder folder;
  save_safetensors(folder / "a.safetensors", {{"class.weight", torch::ones({1})}});
  const SafetensorsFile file(folder / "a.safetensors");
  try {
    file.load("clas.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no tensor clas.weight; did you mean class.weight?"));
  }
}

}  // namespace
}  // namespace remcaps
