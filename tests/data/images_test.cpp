// PNG and JPEG decoding, resizing, and data sets that are folders of pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>

#include "remcaps/base/files.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/data/formats/image_file.h"
#include "remcaps/data/formats/image_tree.h"
#include "remcaps/data/resize.h"
#include "tests/data/fixtures.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReadImage, PngGivesTheVeryPixels) {
  const TemporaryFolder folder;
  for (const int64_t channels : {1, 3}) {
    const torch::Tensor image = noise({channels, 5, 7});
    write_png(folder / "x.png", image);
    EXPECT_TRUE(torch::equal(read_image(folder / "x.png", 0), image));
    EXPECT_EQ(read_image_header(folder / "x.png").channels, channels);
    EXPECT_EQ(read_image_header(folder / "x.png").width, 7);
  }
}

TEST(ReadImage, TurnsColourIntoGreyAndGreyIntoColour) {
  const TemporaryFolder folder;
  torch::Tensor colour = torch::zeros({3, 1, 3}, torch::kUInt8);
  for (int64_t c = 0; c < 3; ++c) colour[c][0][c] = 255;  // a red, a green and a blue pixel
  write_png(folder / "c.png", colour);
  const torch::Tensor grey = read_image(folder / "c.png", 1);
  EXPECT_EQ(grey[0][0][0].item<int>(), 76);   // 0.299 * 255
  EXPECT_EQ(grey[0][0][1].item<int>(), 150);  // 0.587 * 255
  EXPECT_EQ(grey[0][0][2].item<int>(), 29);   // 0.114 * 255
  write_jpeg(folder / "g.jpg", plain_image(1, 8, 8, 100));
  const torch::Tensor repeated = read_image(folder / "g.jpg", 3);
  EXPECT_EQ(repeated.sizes(), (torch::IntArrayRef{3, 8, 8}));
  EXPECT_TRUE(torch::equal(repeated[0], repeated[2]));
}

TEST(ReadImage, JpegIsCloseToWhatWasWritten) {
  const TemporaryFolder folder;
  torch::Tensor image = torch::zeros({3, 16, 16}, torch::kUInt8);
  image[0].fill_(200);
  image[1].fill_(50);
  write_jpeg(folder / "x.jpeg", image);
  const torch::Tensor read = read_image(folder / "x.jpeg", 3);
  EXPECT_LE((read.to(torch::kInt32) - image.to(torch::kInt32)).abs().max().item<int>(), 3);
}

TEST(ReadImage, HalfAPictureIsAnErrorNotAGreyOne) {
  const TemporaryFolder folder;
  write_png(folder / "x.png", noise({3, 32, 32}));
  write_jpeg(folder / "x.jpg", noise({3, 32, 32}));
  for (const char* name : {"x.png", "x.jpg"}) {
    const auto size = fs::file_size(folder / name);
    for (const double share : {0.9, 0.6, 0.3, 0.02}) {
      truncate_file(folder / name, static_cast<uintmax_t>(share * static_cast<double>(size)));
      EXPECT_THAT(error_of([&] { read_image(folder / name, 0); }), HasSubstr(name)) << share;
    }
  }
  write_png(folder / "bits.png", noise({3, 32, 32}));
  damage_file(folder / "bits.png", 500);
  EXPECT_THAT(error_of([&] { read_image(folder / "bits.png", 0); }), HasSubstr("damaged PNG"));
}

TEST(ReadImage, RejectsWhatIsNoImage) {
  const TemporaryFolder folder;
  write_bytes(folder / "text.jpg", "this is no picture");
  EXPECT_THAT(error_of([&] { read_image(folder / "text.jpg", 3); }),
              HasSubstr("text.jpg: neither a PNG nor a JPEG image"));
  write_bytes(folder / "empty.png", "");
  EXPECT_THAT(error_of([&] { read_image(folder / "empty.png", 3); }), HasSubstr("is empty"));
  EXPECT_THAT(error_of([&] { read_image(folder / "none.png", 3); }), HasSubstr("cannot read"));
  EXPECT_THAT(error_of([&] { read_image(folder.path(), 3); }), HasSubstr("is a folder"));
}

TEST(ReadImage, AFileThatCannotBeReadIsNotCalledDamaged) {
  const fs::path unreadable = "/proc/self/mem";  // nothing is at its first byte: EIO
  if (!fs::exists(unreadable)) GTEST_SKIP() << "no " << unreadable;
  EXPECT_THAT(error_of([&] { read_image(unreadable, 3); }),
              HasSubstr("/proc/self/mem: reading failed: Input/output error"));
}

// The first bytes of a PNG: signature and IHDR, for colour of 8 bits.
std::string png_header(uint32_t width, uint32_t height) {
  const auto number = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
  };
  const std::string chunk =
      "IHDR" + number(width) + number(height) + std::string("\x08\x02\0\0\0", 5);
  const auto sum = static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
  return "\x89PNG\r\n\x1a\n" + number(13) + chunk + number(sum) + number(0) + "IDAT" +
         number(0x35af061e);
}

TEST(ReadImage, AFewBytesThatPromiseManyPixelsAreRefusedBeforeMemoryIsTaken) {
  const TemporaryFolder folder;
  write_bytes(folder / "wide.png", png_header(32'768, 32'768));
  EXPECT_THAT(error_of([&] { read_image(folder / "wide.png", 3); }),
              HasSubstr("32768 x 32768 pixels; expected at most 67,108,864"));
  write_bytes(folder / "large.png", png_header(8000, 8000));
  EXPECT_THAT(error_of([&] { read_image(folder / "large.png", 3); }),
              HasSubstr("8000 x 8000 pixels in"));
  // The same promise in the header of a real JPEG file: marker SOF0, then its length and 8 bits.
  write_jpeg(folder / "x.jpg", noise({3, 32, 32}));
  std::string bytes = read_file(folder / "x.jpg");
  const size_t frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  bytes.replace(frame + 5, 4, "\x1f\x40\x1f\x40");
  write_bytes(folder / "large.jpg", bytes);
  EXPECT_THAT(error_of([&] { read_image(folder / "large.jpg", 3); }),
              HasSubstr("8000 x 8000 pixels in"));
}

// The filter by its definition, in floating point: what the integer version must round.
std::vector<double> triangle_resize(const std::vector<int>& in, size_t out) {
  const double scale = static_cast<double>(in.size()) / static_cast<double>(out);
  const double support = std::max(1.0, scale);
  std::vector<double> result;
  for (size_t x = 0; x < out; ++x) {
    const double centre = (static_cast<double>(x) + 0.5) * scale;
    double sum = 0, total = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double w =
          std::max(0.0, 1.0 - std::abs((static_cast<double>(i) + 0.5 - centre) / support));
      sum += w * in[i];
      total += w;
    }
    result.push_back(sum / total);
  }
  return result;
}

TEST(Resize, FollowsTheWidenedTriangleFilter) {
  const std::vector<int> line = {0, 255, 10, 200, 30, 90, 120, 7, 66, 250, 3, 180};
  const torch::Tensor image = torch::tensor(line, torch::kUInt8).view({1, 1, 12});
  for (const size_t out : {1, 3, 5, 8, 11, 12, 17, 24, 40}) {
    const auto expected = triangle_resize(line, out);
    const torch::Tensor row = resize_images(image, 1, static_cast<int64_t>(out)).flatten();
    const torch::Tensor column =
        resize_images(image.transpose(1, 2), static_cast<int64_t>(out), 1).flatten();
    for (size_t i = 0; i < out; ++i) {
      EXPECT_NEAR(row[static_cast<int64_t>(i)].item<int>(), expected[i], 0.5001)
          << out << " at " << i;
      EXPECT_NEAR(column[static_cast<int64_t>(i)].item<int>(), expected[i], 0.5001)
          << out << " at " << i;
    }
  }
}

TEST(Resize, KnownValues) {
  // Doubling [0, 100]: quarter steps between, the ends held. Halving [0, 0, 255, 255] with
  // support 2.
  const torch::Tensor two = torch::tensor({0, 100}, torch::kUInt8).view({1, 2});
  EXPECT_TRUE(torch::equal(resize_images(two, 1, 4),
                           torch::tensor({0, 25, 75, 100}, torch::kUInt8).view({1, 4})));
  const torch::Tensor four = torch::tensor({0, 0, 255, 255}, torch::kUInt8).view({1, 4});
  EXPECT_TRUE(torch::equal(resize_images(four, 1, 2),
                           torch::tensor({36, 219}, torch::kUInt8).view({1, 2})));
}

TEST(Resize, WithoutAntialiasItReadsTheTwoNeighboursOfAPlace) {
  // Centres of a third of six pixels lie on pixels 1 and 4; those of a half between two pixels.
  const torch::Tensor six = torch::tensor({0, 100, 0, 0, 200, 0}, torch::kUInt8).view({1, 6});
  EXPECT_TRUE(torch::equal(resize_images(six, 1, 2, /*antialias=*/false),
                           torch::tensor({100, 200}, torch::kUInt8).view({1, 2})));
  EXPECT_TRUE(torch::equal(resize_images(six, 1, 3, /*antialias=*/false),
                           torch::tensor({50, 0, 100}, torch::kUInt8).view({1, 3})));
  EXPECT_TRUE(torch::equal(resize_images(six, 1, 9, false), resize_images(six, 1, 9)));
}

TEST(Resize, KeepsFlatImagesAndUntouchedSizes) {
  EXPECT_TRUE(
      torch::equal(resize_images(plain_image(3, 13, 9, 255), 20, 4), plain_image(3, 20, 4, 255)));
  const torch::Tensor image = noise({2, 3, 6, 8});
  EXPECT_TRUE(torch::equal(resize_images(image, 6, 8), image));
}

TEST(Resize, ABatchEqualsItsImagesOneByOne) {
  const torch::Tensor batch = noise({4, 3, 9, 11});
  const torch::Tensor resized = resize_images(batch, 5, 16);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(torch::equal(resized[i], resize_images(batch[i], 5, 16)));
}

TEST(Resize, PlainLoopsAndTensorOperationsGiveTheSameBytes) {
  const torch::Tensor picture = noise({3, 37, 53});
  for (const auto& [height, width] : {std::pair{16, 16}, {37, 20}, {80, 53}, {64, 128}, {1, 1}})
    EXPECT_TRUE(
        torch::equal(resize_picture(picture, height, width), resize_images(picture, height, width)))
        << height << " x " << width;
}

Dataset decode(const std::vector<LabelledImage>& list, int64_t side) {
  return decode_images(list, {3, side, side});
}

TEST(ImageFolder, ReadsClassFoldersOfMixedPicturesInNameOrder) {
  const TemporaryFolder folder;
  write_png(folder / "pets" / "dog" / "b.png", plain_image(1, 4, 6, 10));
  write_jpeg(folder / "pets" / "dog" / "a.JPG", plain_image(3, 9, 9, 20));
  write_png(folder / "pets" / "ant" / "z.png", plain_image(3, 5, 5, 30));
  write_bytes(folder / "pets" / "ant" / "notes.txt", "not a picture");
  const ImageSet images = find_dataset("folder").list(folder / "pets");
  EXPECT_EQ(images.class_names, (std::vector<std::string>{"ant", "dog"}));
  ASSERT_EQ(images.train.size(), 3u);
  EXPECT_EQ(images.train[1].path.filename(), "a.JPG");
  EXPECT_EQ(images.train[1].label, 1);

  const PictureShape shape = common_shape(images, 0, 0);
  EXPECT_EQ(shape.channels, 3);  // one picture has colour
  EXPECT_EQ(shape.height, 128);  // sizes differ
  const Dataset set = decode(images.train, 8);
  EXPECT_EQ(set.images.sizes(), (torch::IntArrayRef{3, 3, 8, 8}));
  EXPECT_EQ(set.images[0][0][0][0].item<int>(), 30);
  EXPECT_EQ(set.images[2][1][7][7].item<int>(), 10);
}

TEST(ImageFolder, KeepsAGreySizeThatAllShare) {
  const TemporaryFolder folder;
  for (const char* name : {"a/1.png", "b/1.png"})
    write_png(folder / name, plain_image(1, 4, 6, 10));
  const PictureShape shape = common_shape(find_dataset("folder").list(folder.path()), 0, 0);
  EXPECT_EQ(shape.channels, 1);
  EXPECT_EQ(shape.height, 4);
  EXPECT_EQ(shape.width, 6);
}

TEST(ImageFolder, TakesValAndTestFoldersAsTheyStand) {
  const TemporaryFolder folder;
  for (const char* part : {"train", "val", "test"})
    for (const char* name : {"a", "b"})
      write_png(folder / part / name / "1.png", plain_image(1, 4, 4, 1));
  ImageSet images = find_dataset("folder").list(folder.path());
  EXPECT_EQ(images.validation.size(), 2u);
  EXPECT_EQ(images.test.size(), 2u);
  fs::remove_all(folder / "test");
  images = find_dataset("folder").list(folder.path());
  EXPECT_TRUE(images.validation.empty());
  EXPECT_EQ(images.test.size(), 2u);
  write_png(folder / "val" / "c" / "1.png", plain_image(1, 4, 4, 1));
  EXPECT_THAT(error_of([&] { find_dataset("folder").list(folder.path()); }),
              HasSubstr("a class that train/ does not have"));
}

TEST(ImageFolder, NamesTheDamagedPicture) {
  const TemporaryFolder folder;
  write_png(folder / "a" / "fine.png", plain_image(3, 8, 8, 1));
  write_png(folder / "b" / "bad.png", noise({3, 8, 8}));
  truncate_file(folder / "b" / "bad.png", 60);
  const ImageSet images = find_dataset("folder").list(folder.path());
  EXPECT_THAT(error_of([&] { decode(images.train, 8); }), HasSubstr("b/bad.png"));
  const auto lines = damaged_images(images.train);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("b/bad.png"));
}

TEST(ImageFolder, AClassWhoseNameNoFileCanHoldIsAnErrorAtOnce) {
  const TemporaryFolder folder;
  for (const char* name : {"plain", "caf\xe9"})  // Latin-1
    write_png(folder / name / "x.png", plain_image(1, 8, 8, 1));
  EXPECT_THAT(error_of([&] { find_dataset("folder").list(folder.path()); }),
              HasSubstr("caf\xe9: a class's name has to be UTF-8"));
}

void write_tiny(const fs::path& folder) {
  write_bytes(folder / "wnids.txt", "n02\nn01\n");
  write_bytes(folder / "words.txt", "n01\tgoldfish, Carassius auratus\nn02\tbullfrog\n");
  for (const char* wnid : {"n01", "n02"})
    for (int i = 0; i < 10; ++i)
      write_jpeg(folder / "train" / wnid / "images" / fmt::format("{}_{}.JPEG", wnid, i),
                 plain_image(3, 64, 64, 20 * i));
  write_jpeg(folder / "val" / "images" / "val_0.JPEG", plain_image(1, 64, 64, 100));
  write_bytes(folder / "val" / "val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t44\t62\n");
}

TEST(TinyImageNet, ReadsItsOwnLayout) {
  const TemporaryFolder folder;
  write_tiny(folder / "tiny-imagenet-200");
  DatasetOptions options;
  options.name = "tiny-imagenet";
  const DataSplits splits = load_dataset(options, folder.path());
  EXPECT_EQ(splits.class_names, (std::vector<std::string>{"goldfish", "bullfrog"}));
  EXPECT_EQ(splits.train.size(), 18);
  EXPECT_EQ(splits.validation.size(), 2);
  EXPECT_EQ(splits.test.size(), 1);
  EXPECT_EQ(splits.test.labels[0].item<int64_t>(), 1);
  EXPECT_EQ(splits.test.images.sizes(), (torch::IntArrayRef{1, 3, 64, 64}));
}

TEST(TinyImageNet, RejectsAnnotationsThatDoNotFit) {
  const TemporaryFolder folder;
  write_tiny(folder.path());
  const auto list = [&] { find_dataset("tiny-imagenet").list(folder.path()); };
  write_bytes(folder / "val" / "val_annotations.txt", "val_0.JPEG\tn09\t0\t0\t1\t1\n");
  EXPECT_THAT(error_of(list), AllOf(HasSubstr("val_annotations.txt"), HasSubstr("n09")));
  write_bytes(folder / "val" / "val_annotations.txt", "val_7.JPEG\tn01\t0\t0\t1\t1\n");
  EXPECT_THAT(error_of(list), HasSubstr("val_7.JPEG: is missing"));
  fs::remove_all(folder / "train" / "n02");
  EXPECT_THAT(error_of(list), AllOf(HasSubstr("n02"), HasSubstr("is missing")));
}

TEST(DogsVsCats, ReadsFlatAndClassFolders) {
  const TemporaryFolder folder;
  for (int i = 0; i < 12; ++i) {
    write_jpeg(folder / "flat" / "train" / fmt::format("cat.{}.jpg", i), plain_image(3, 8, 8, 0));
    write_jpeg(folder / "flat" / "train" / fmt::format("dog.{}.jpg", i), plain_image(3, 8, 8, 200));
    write_jpeg(folder / "classes" / "Cat" / fmt::format("{}.jpg", i), plain_image(3, 8, 8, 0));
    write_jpeg(folder / "classes" / "Dog" / fmt::format("{}.jpg", i), plain_image(3, 8, 8, 200));
  }
  const DatasetDescriptor& dataset = find_dataset("dogs-vs-cats");
  const auto flat = dataset.list(folder / "flat").train;
  ASSERT_EQ(flat.size(), 24u);
  EXPECT_EQ(flat[10].path.filename(), "cat.10.jpg");  // by number, not by text
  EXPECT_EQ(flat[12].label, 1);
  EXPECT_EQ(dataset.list(folder / "classes").train.size(), 24u);
  EXPECT_TRUE(dataset.holds(folder / "classes"));
  EXPECT_FALSE(dataset.holds(folder / "nowhere"));

  DatasetOptions options;
  options.name = "dogs-vs-cats";
  options.folder = (folder / "flat").string();
  options.image_size = 16;
  const DataSplits splits = load_dataset(options, folder.path());
  EXPECT_EQ(splits.train.size(), 20);
  EXPECT_EQ(splits.validation.size(), 2);
  EXPECT_EQ(splits.test.size(), 2);
  EXPECT_EQ(splits.train.images.size(3), 16);
  // Labels stay with their pictures through decoding and splitting.
  for (const Dataset* part : {&splits.train, &splits.validation, &splits.test})
    for (int64_t i = 0; i < part->size(); ++i)
      EXPECT_EQ(part->images[i].max().item<int>() > 100, part->labels[i].item<int64_t>() == 1);
}

}  // namespace
}  // namespace remcaps::testing
