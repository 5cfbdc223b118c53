#include "remcaps/tensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/tensors/cut_file.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::filesystem::path& path) {
  try {
    const SafetensorsFile file(path);
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

TensorView view_of(const std::vector<float>& values) {
  return {ElementType::kFloat32,
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

TEST(Safetensors, WritesWideTypesFirstAndReadsThemBack) {
  testing::TemporaryFolder folder;
  const std::vector<float> floats = {1.5F, -2.0F};
  const std::vector<uint8_t> bytes = {1, 2, 3};
  const TensorViews tensors = {
      {"a", {ElementType::kUInt8, {3, 1}, std::as_bytes(std::span(bytes))}},
      {"b", view_of(floats)},
      {"empty", {ElementType::kInt64, {0, 4}, {}}}};
  write_safetensors(folder / "a.safetensors", tensors, {{"model", "dr-capsnet"}});
  const std::string header = R"({"__metadata__":{"model":"dr-capsnet"},)"
                             R"("a":{"data_offsets":[8,11],"dtype":"U8","shape":[3,1]},)"
                             R"("b":{"data_offsets":[0,8],"dtype":"F32","shape":[2]},)"
                             R"("empty":{"data_offsets":[0,0],"dtype":"I64","shape":[0,4]}})";
  const std::string whole = read_file(folder / "a.safetensors");
  EXPECT_EQ(whole.substr(8, header.size()), header);
  EXPECT_EQ(static_cast<uint8_t>(whole[0]), (header.size() + 7) / 8 * 8);
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.metadata().at("model"), "dr-capsnet");
  EXPECT_THAT(file.names(), ::testing::ElementsAre("a", "b", "empty"));
  for (const auto& [name, tensor] : tensors) {
    const TensorView& found = file.tensor(name);
    EXPECT_EQ(found.type, tensor.type) << name;
    EXPECT_EQ(found.shape, tensor.shape) << name;
    EXPECT_TRUE(std::ranges::equal(found.bytes, tensor.bytes)) << name;
  }
}

TEST(Safetensors, ATruncatedFileIsRejectedAtEveryLength) {
  testing::TemporaryFolder folder;
  const std::vector<float> x(8, 1.0F), y(3, 2.0F);
  write_safetensors(folder / "a.safetensors", {{"x", view_of(x)}, {"y", view_of(y)}});
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
  reject(R"({"x":1e999})", 0, "broken header: a number is too large");
  reject(R"({"x":7})", 0, "broken header: x is not a tensor's dtype, shape and data_offsets");
  reject(R"({"__metadata__":{"a":1}})", 0, "__metadata__ is not a text for every key");
  reject(R"({"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "unknown type F99");
  reject(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
         "more than the file holds");
  reject(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 4, "truncated");
  reject(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "cover 4 of 8");
  reject(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4,
         "more than the file holds");
  reject(R"({"x":{"dtype":"F32","shape":[1.1e21],"data_offsets":[0,4]}})", 4,
         "x is not a tensor's dtype, shape and data_offsets");
  reject(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "truncated");
  reject(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
         "more than the file holds");
  reject(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 2, "needs 2 bytes, has 1");
}

TEST(Safetensors, AKeyGivenTwiceIsRejected) {
  testing::TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  const std::string x = R"("x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  for (const auto& [key, header] : std::vector<std::pair<std::string, std::string>>{
           {"x", "{" + x + "," + x + "}"},
           {"dtype", R"({"x":{"dtype":"I8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})"},
           {"a", R"({"__metadata__":{"a":"1","a":"2"},)" + x + "}"}}) {
    write_atomically(path, file_with_header(header, 1));
    EXPECT_EQ(error_of(path),
              fmt::format("{}: broken header: the key {} is given twice", path.string(), key));
  }
}

// A suggestion is sought only for a name that is missing: it takes a pass over all names.
TEST(Safetensors, ManyTensorsAreFoundByName) {
  testing::TemporaryFolder folder;
  std::string header = "{";
  constexpr int kCount = 10'000;
  for (int k = 0; k < kCount; ++k)
    header += fmt::format(R"({}"layer{}.weight":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                          k == 0 ? "" : ",", k);
  write_atomically(folder / "many.safetensors", file_with_header(header + "}", 0));
  const SafetensorsFile file(folder / "many.safetensors");
  for (int k = 0; k < kCount; ++k)
    ASSERT_EQ(file.tensor(fmt::format("layer{}.weight", k)).shape, std::vector<int64_t>{0});
}

TEST(Safetensors, TooMuchIsRejected) {
  testing::TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  std::string zeros;
  for (int k = 0; k < 1'000'000; ++k) zeros += "0,";
  const auto shape = [](const std::string& values) {
    return R"({"x":{"dtype":"U8","shape":[)" + values + R"(0],"data_offsets":[0,0]}})";
  };
  write_atomically(path, file_with_header(shape(zeros), 0));
  EXPECT_EQ(error_of(path), path.string() + ": broken header: it has more than 1000000 values");
  write_atomically(path, file_with_header(std::string(1'000'000, '['), 0));
  EXPECT_EQ(error_of(path), path.string() + ": broken header: it has more than 8 levels");
  const std::string text(2'000'000, '[');
  write_atomically(path, file_with_header(R"({"__metadata__":{"a":")" + text + R"("}})", 0));
  EXPECT_EQ(error_of(path),
            path.string() + ": its metadata have 2000001 bytes; expected at most 1048576");
  write_atomically(path, file_with_header(R"({"a":")" + std::string(8'000'000, 'x') + R"("})", 0));
  EXPECT_THAT(error_of(path), HasSubstr("header of 8000008 bytes"));
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
  const std::vector<float> weight(1);
  write_safetensors(folder / "a.safetensors", {{"class.weight", view_of(weight)}});
  const SafetensorsFile file(folder / "a.safetensors");
  try {
    file.tensor("clas.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no tensor clas.weight; did you mean class.weight?"));
  }
}

TEST(CutFile, EndsTheProgramWithOneLine) {
  testing::TemporaryFolder folder;
  const std::vector<float> values(1 << 16, 1.0F);
  write_safetensors(folder / "a.safetensors", {{"a", view_of(values)}}, {});
  const SafetensorsFile file(folder / "a.safetensors");
  const std::span<const std::byte> bytes = file.tensor("a").bytes;
  std::filesystem::resize_file(folder / "a.safetensors", 4096);
  const auto read_last = [&] {
    exit_if_a_mapped_file_is_cut();
    volatile std::byte last = bytes.back();
    std::exit(static_cast<int>(last));
  };
  EXPECT_EXIT(read_last(), ::testing::ExitedWithCode(1),
              "^remcaps: a file became shorter while it was read\n$");
}

}  // namespace
}  // namespace remcaps
