// idx, CIFAR-10, NORB and MAT files, whole and damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/data/descriptor.h"
#include "remcaps/data/formats/cifar.h"
#include "remcaps/data/formats/gz_reader.h"
#include "remcaps/data/formats/idx.h"
#include "remcaps/data/formats/mat5.h"
#include "remcaps/data/formats/norb.h"
#include "tests/data/fixtures.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Idx, ReadsPlainAndCompressedFilesAlike) {
  const TemporaryFolder folder;
  const std::string bytes = idx_bytes({2, 2, 3}, "abcdefghijkl");
  write_bytes(folder / "plain", bytes);
  write_bytes(folder / "packed.gz", gzip(bytes));
  const torch::Tensor plain = read_idx(folder / "plain");
  EXPECT_EQ(plain.sizes(), (torch::IntArrayRef{2, 2, 3}));
  EXPECT_EQ(plain[1][0][2].item<int>(), 'i');
  EXPECT_TRUE(torch::equal(plain, read_idx(folder / "packed.gz")));
}

TEST(Idx, NamesFileFoundAndExpectedWhereItIsCutShort) {
  const TemporaryFolder folder;
  write_bytes(folder / "short", idx_bytes({2, 2, 3}, "abcdefghijk"));
  EXPECT_THAT(
      error_of([&] { read_idx(folder / "short"); }),
      AllOf(HasSubstr("short: 11 bytes"), HasSubstr("[2, 2, 3]"), HasSubstr("expected 12")));
  write_bytes(folder / "long", idx_bytes({2, 2, 3}, "abcdefghijklm"));
  EXPECT_THAT(error_of([&] { read_idx(folder / "long"); }), HasSubstr("more bytes than"));
  write_bytes(folder / "empty", "");
  EXPECT_THAT(error_of([&] { read_idx(folder / "empty"); }), HasSubstr("0 bytes of idx header"));
}

TEST(Idx, RejectsTruncatedAndDamagedCompression) {
  const TemporaryFolder folder;
  std::string data;
  for (int i = 0; i < 100'000; ++i) data += static_cast<char>(i % 251 * 7);
  const std::string packed = gzip(idx_bytes({100'000}, data));
  write_bytes(folder / "cut.gz", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(error_of([&] { read_idx(folder / "cut.gz"); }), HasSubstr("truncated"));
  // Without its last bytes the stream is complete but its checksum is not.
  write_bytes(folder / "tail.gz", packed.substr(0, packed.size() - 4));
  EXPECT_THAT(error_of([&] { read_idx(folder / "tail.gz"); }), HasSubstr("tail.gz"));
  write_bytes(folder / "damaged.gz", packed);
  damage_file(folder / "damaged.gz", packed.size() / 2);
  EXPECT_THAT(error_of([&] { read_idx(folder / "damaged.gz"); }), HasSubstr("damaged.gz"));
}

TEST(Idx, RejectsAnotherFormatAndAbsurdExtents) {
  const TemporaryFolder folder;
  write_bytes(folder / "text", "hello, world");
  EXPECT_THAT(error_of([&] { read_idx(folder / "text"); }),
              AllOf(HasSubstr("starts with 68656c6c"), HasSubstr("00000801")));
  write_bytes(folder / "floats", std::string("\0\0\x0d\x01", 4) + "xxxx");
  EXPECT_THAT(error_of([&] { read_idx(folder / "floats"); }), HasSubstr("00000d01"));
  write_bytes(folder / "huge", idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, ""));
  EXPECT_THAT(error_of([&] { read_idx(folder / "huge"); }), HasSubstr("sensible size"));
  write_bytes(folder / "promise", idx_bytes({0x40000000, 15}, "xyz"));
  EXPECT_THAT(error_of([&] { read_idx(folder / "promise"); }),
              HasSubstr("cannot hold 16,106,127,360 bytes"));
  EXPECT_THAT(error_of([&] { read_idx(folder / "nowhere"); }), HasSubstr("cannot read"));
}

TEST(Idx, PairsMustAgreeAndLabelsBeInRange) {
  const TemporaryFolder folder;
  write_bytes(folder / "images", idx_bytes({3, 1, 2}, "abcdef"));
  write_bytes(folder / "two", idx_bytes({2}, std::string("\x01\x02", 2)));
  EXPECT_THAT(error_of([&] { read_idx_pair(folder / "images", folder / "two", 10); }),
              AllOf(HasSubstr("two: 2 labels"), HasSubstr("3 images")));
  write_bytes(folder / "ten", idx_bytes({3}, std::string("\x01\x02\x0a", 3)));
  EXPECT_THAT(error_of([&] { read_idx_pair(folder / "images", folder / "ten", 10); }),
              AllOf(HasSubstr("image 2 has the label 10"), HasSubstr("expected 0 to 9")));
  // Labels and images mixed up.
  EXPECT_THAT(error_of([&] { read_idx_pair(folder / "two", folder / "images", 10); }),
              HasSubstr("images have 3"));
}

std::string cifar_record(int label, int red) {
  return std::string(1, static_cast<char>(label)) + std::string(1024, static_cast<char>(red)) +
         std::string(1024, '\x02') + std::string(1024, '\x03');
}

TEST(Cifar, ReadsLabelsAndPlanes) {
  const TemporaryFolder folder;
  write_bytes(folder / "batch.bin", cifar_record(7, 9) + cifar_record(0, 1));
  const Dataset set = read_cifar_batches({folder / "batch.bin", folder / "batch.bin"}, 2);
  EXPECT_EQ(set.images.sizes(), (torch::IntArrayRef{4, 3, 32, 32}));
  EXPECT_EQ(set.labels[2].item<int64_t>(), 7);
  EXPECT_EQ(set.images[0][0][31][31].item<int>(), 9);
  EXPECT_EQ(set.images[3][2][0][0].item<int>(), 3);
}

TEST(Cifar, RejectsWrongSizesAndLabels) {
  const TemporaryFolder folder;
  const std::string two = cifar_record(7, 9) + cifar_record(11, 1);
  write_bytes(folder / "short.bin", two.substr(0, two.size() - 1));
  EXPECT_THAT(error_of([&] { read_cifar_batch(folder / "short.bin", 2); }),
              AllOf(HasSubstr("6,145 bytes"), HasSubstr("6,146"), HasSubstr("truncated")));
  write_bytes(folder / "long.bin", two + "x");
  EXPECT_THAT(error_of([&] { read_cifar_batch(folder / "long.bin", 2); }), HasSubstr("more bytes"));
  write_bytes(folder / "label.bin", two);
  EXPECT_THAT(error_of([&] { read_cifar_batch(folder / "label.bin", 2); }),
              HasSubstr("image 1 has the label 11"));
}

TEST(Norb, ReadsPairsCategoriesAndPosesInDegrees) {
  const TemporaryFolder folder;
  write_bytes(folder / "dat", norb_bytes({2, 2, 1, 3}, "abcdefghijkl"));
  write_bytes(folder / "cat", norb_ints({2}, {4, 0}));
  write_bytes(folder / "info.gz", gzip(norb_ints({2, 4}, {6, 8, 34, 5, 9, 0, 2, 1})));
  const Dataset set = read_small_norb(folder / "dat", folder / "cat", folder / "info.gz");
  EXPECT_EQ(set.images.sizes(), (torch::IntArrayRef{2, 2, 1, 3}));
  EXPECT_EQ(set.images[1][0][0][1].item<int>(), 'h');
  EXPECT_EQ(set.labels[0].item<int64_t>(), 4);
  EXPECT_EQ(set.attributes.at("instance")[1].item<int64_t>(), 9);
  EXPECT_EQ(set.attributes.at("elevation")[0].item<int64_t>(), 70);
  EXPECT_EQ(set.attributes.at("azimuth")[0].item<int64_t>(), 340);
  EXPECT_EQ(set.attributes.at("lighting")[0].item<int64_t>(), 5);
  EXPECT_TRUE(read_small_norb(folder / "dat", folder / "cat", "").attributes.empty());
}

TEST(Norb, RejectsDamagedFiles) {
  const TemporaryFolder folder;
  write_bytes(folder / "dat", norb_bytes({2, 2, 1, 3}, "abcdefghijkl"));
  write_bytes(folder / "cat", norb_ints({2}, {5, 0}));
  EXPECT_THAT(error_of([&] { read_small_norb(folder / "dat", folder / "cat", ""); }),
              HasSubstr("label 5; expected 0 to 4"));
  write_bytes(folder / "three", norb_ints({3}, {1, 0, 0}));
  EXPECT_THAT(error_of([&] { read_small_norb(folder / "dat", folder / "three", ""); }),
              AllOf(HasSubstr("shape [3]"), HasSubstr("2 images")));
  write_bytes(folder / "good", norb_ints({2}, {1, 0}));
  write_bytes(folder / "info", norb_ints({2, 4}, {6, 9, 34, 5, 9, 0, 2, 1}));
  EXPECT_THAT(error_of([&] { read_small_norb(folder / "dat", folder / "good", folder / "info"); }),
              HasSubstr("elevations from 0 to 9; expected 0 to 8"));
  truncate_file(folder / "dat", 30);
  EXPECT_THAT(error_of([&] { read_norb_matrix(folder / "dat"); }),
              AllOf(HasSubstr("6 bytes"), HasSubstr("expected 12")));
  write_bytes(folder / "other", "some text that is no matrix");
  EXPECT_THAT(error_of([&] { read_norb_matrix(folder / "other"); }), HasSubstr("1e3d4c55"));
}

// A picture whose value tells row, column and channel, in MATLAB's order (rows first).
std::string svhn_pixels(int images) {
  std::string pixels;
  for (int n = 0; n < images; ++n)
    for (int c = 0; c < 3; ++c)
      for (int x = 0; x < 32; ++x)
        for (int y = 0; y < 32; ++y) pixels += static_cast<char>(y * 7 + x * 3 + c * 50 + n);
  return pixels;
}

class Mat : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_mat()) GTEST_SKIP() << "built without libmatio";
  }
  // The training part of SVHN whose two files are `file`.
  Dataset read_svhn(const std::string& file) {
    for (const char* name : {"train_32x32.mat", "test_32x32.mat"})
      write_bytes(folder_ / name, file);
    SourceData source;
    find_dataset("svhn").read({folder_.path(), {}}, source);
    return source.train;
  }
  const TemporaryFolder folder_;
};

TEST_F(Mat, ReadsSvhnWithRowsAsRowsAndTenAsZero) {
  for (const bool compressed : {false, true}) {
    const Dataset set = read_svhn(mat_file({mat_array("X", {32, 32, 3, 2}, svhn_pixels(2)),
                                            mat_array("y", {2, 1}, std::string("\x0a\x03", 2))},
                                           compressed));
    EXPECT_EQ(set.images.sizes(), (torch::IntArrayRef{2, 3, 32, 32}));
    EXPECT_EQ(set.images[1][2][5][9].item<int>(), (5 * 7 + 9 * 3 + 2 * 50 + 1) % 256);
    EXPECT_EQ(set.labels[0].item<int64_t>(), 0);
    EXPECT_EQ(set.labels[1].item<int64_t>(), 3);
  }
}

TEST_F(Mat, ReadsAffnistsStructure) {
  std::string pixels(2 * 1600, '\0');
  pixels[1600 + 3 * 40 + 7] = 99;  // image 1, row 3, column 7
  write_bytes(
      folder_ / "test.mat",
      mat_file({mat_structure("affNISTdata",
                              {{"image", mat_array("", {1600, 2}, pixels)},
                               {"label_int", mat_array("", {1, 2}, std::string("\x07\x00", 2))}})},
               /*compressed=*/true));
  write_mnist(folder_ / "mnist", 10, 10);
  SourceData source;
  find_dataset("affnist").read({folder_.path(), folder_ / "mnist"}, source);
  const Dataset& set = source.test;
  EXPECT_EQ(set.images.sizes(), (torch::IntArrayRef{2, 1, 40, 40}));
  EXPECT_EQ(set.images[1][0][3][7].item<int>(), 99);
  EXPECT_EQ(set.labels[0].item<int64_t>(), 7);
}

TEST_F(Mat, RejectsEveryTruncation) {
  const std::string whole = mat_file({mat_array("X", {32, 32, 3, 2}, svhn_pixels(2)),
                                      mat_array("y", {2, 1}, std::string("\x0a\x03", 2))},
                                     /*compressed=*/true);
  for (const size_t size : {size_t{0}, size_t{100}, size_t{128}, size_t{131}, whole.size() / 2,
                            whole.size() - 20, whole.size() - 1}) {
    EXPECT_THAT(error_of([&] { read_svhn(whole.substr(0, size)); }), HasSubstr("train_32x32.mat"))
        << size;
  }
}

TEST_F(Mat, RejectsDamageWrongNamesAndWrongLabels) {
  const std::string pixels = mat_array("X", {32, 32, 3, 1}, svhn_pixels(1));
  const std::string label = mat_array("y", {1, 1}, "\x05");
  std::string damaged = mat_file({pixels, label}, true);
  damaged[600] = static_cast<char>(~damaged[600]);
  EXPECT_THAT(error_of([&] { read_svhn(damaged); }), HasSubstr("damaged"));
  EXPECT_THAT(error_of([&] { read_svhn(mat_file({pixels}, false)); }), HasSubstr("no variable y"));
  const auto labelled = [&](const std::string& value) {
    return mat_file({pixels, mat_array("y", {1, 1}, value)}, false);
  };
  EXPECT_THAT(error_of([&] { read_svhn(labelled("\x0b")); }), HasSubstr("label 11"));
  EXPECT_THAT(error_of([&] { read_svhn(labelled(std::string(1, '\0'))); }),
              HasSubstr("labels are 1 to 10"));
  EXPECT_THAT(error_of([&] { read_svhn("MATLAB 7.3 MAT-file" + std::string(200, ' ')); }),
              AllOf(HasSubstr("MATLAB 7.3"), HasSubstr("expected \"MATLAB 5.0")));
}

// libmatio would take memory for what such a header promises.
TEST_F(Mat, RejectsShapesAndPartsThatPromiseMoreThanTheFileHolds) {
  const std::string label = mat_array("y", {1, 1}, "\x05");
  for (const bool compressed : {false, true}) {
    const auto refused = [&](const std::string& images) {
      return error_of([&] { read_svhn(mat_file({images, label}, compressed)); });
    };
    EXPECT_THAT(refused(mat_array("X", {32, 32, 3, 1 << 20}, svhn_pixels(1))),
                AllOf(HasSubstr("3,221,225,472 values"), HasSubstr("has 3,072")));
    EXPECT_THAT(refused(mat_array("X", {1 << 30, 1 << 30, 1 << 30}, "x")),
                HasSubstr("shape is not sensible"));
    // The bytes of the shape: 8 of the element's tag, 16 of its flags, 4 of the shape's type.
    std::string long_shape = mat_array("X", {32, 32, 3, 1}, svhn_pixels(1));
    long_shape.replace(8 + 16 + 4, 4, std::string("\0\0\0\x20", 4));
    EXPECT_THAT(refused(long_shape), HasSubstr("shape of 536,870,912 bytes"));
  }
}

// Each would be a division by zero.
TEST_F(Mat, RejectsNumbersAndFieldNamesOfNoBytes) {
  std::string values = mat_array("X", {32, 32, 3, 1}, svhn_pixels(1));
  values.replace(8 + 16 + 24 + 16, 4, 4, '\0');  // after the tag, the flags, the shape and the name
  EXPECT_THAT(error_of([&] { read_svhn(mat_file({values}, false)); }),
              HasSubstr("values of the element type 0"));
  std::string names = mat_structure("X", {{"image", mat_array("", {1, 1}, "x")}});
  names.replace(8 + 16 + 16 + 16 + 4, 4, 4, '\0');
  EXPECT_THAT(error_of([&] { read_svhn(mat_file({names}, false)); }),
              HasSubstr("field names do not fit"));
}

}  // namespace
}  // namespace remcaps::testing
