// Finding, splitting, preparing and verifying whole data sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "remcaps/base/files.h"
#include "remcaps/data/affine_digits.h"
#include "remcaps/data/checksum.h"
#include "remcaps/data/formats/mat5.h"
#include "remcaps/data/formats/prepared.h"
#include "remcaps/data/source.h"
#include "remcaps/data/splits.h"
#include "remcaps/data/verify.h"
#include "tests/data/fixtures.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DatasetOptions named(const std::string& name) {
  DatasetOptions options;
  options.name = name;
  return options;
}

// n images whose only pixels hold their index, so that a split's indices can be read back.
SourceData numbered(const std::string& name, int64_t n, int64_t test = 10) {
  SourceData source;
  source.name = name;
  source.class_names = {"a", "b"};
  const auto make = [](int64_t count) {
    Dataset set;
    const torch::Tensor index = torch::arange(count, torch::kInt64);
    set.images = torch::stack({index % 256, index / 256 % 256, index / 65536}, 1)
                     .to(torch::kUInt8)
                     .view({count, 3, 1, 1});
    set.labels = index % 2;
    return set;
  };
  source.train = make(n);
  if (test > 0) source.test = make(test);
  return source;
}

std::vector<int64_t> first_indices(const Dataset& set, int64_t count) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    const torch::Tensor pixel = set.images[i].to(torch::kInt64).flatten();
    indices.push_back(pixel[0].item<int64_t>() + 256 * pixel[1].item<int64_t>() +
                      65536 * pixel[2].item<int64_t>());
  }
  return indices;
}

TEST(Datasets, DescriptorsAreComplete) {
  std::set<std::string> names;
  for (const DatasetDescriptor& dataset : datasets()) {
    SCOPED_TRACE(dataset.name);
    EXPECT_TRUE(names.insert(dataset.name).second) << "two data sets of one name";
    EXPECT_FALSE(dataset.title.empty());
    EXPECT_FALSE(dataset.terms.empty());
    EXPECT_FALSE(dataset.how_to_get().empty());
    EXPECT_NE(static_cast<bool>(dataset.read), static_cast<bool>(dataset.list));
    EXPECT_TRUE(dataset.holds || !dataset.files.empty()) << "nothing to recognise its folder by";
    EXPECT_EQ(dataset.homes.empty(), dataset.needs_folder);
    EXPECT_EQ(dataset.protocols.empty(), dataset.attribute_files.empty());
    EXPECT_EQ(dataset.shape.empty(), dataset.classes() == 0);
    if (!dataset.based_on.empty()) {
      EXPECT_NO_THROW(find_dataset(dataset.based_on));
    }
    for (const PublishedFile& file : dataset.files)
      EXPECT_TRUE(file.sha256.empty() || file.sha256.size() == 64) << file.path;
  }
  EXPECT_EQ(find_dataset("tiny-imagenet").classes(), 200);
}

TEST(Splits, ValidationIndicesArePublishedOnes) {
  const DataSplits mnist = make_splits(numbered("mnist", 60'000), named("mnist"));
  EXPECT_EQ(mnist.validation.size(), 5'500);
  EXPECT_EQ(mnist.train.size(), 54'500);
  EXPECT_EQ(first_indices(mnist.validation, 5),
            (std::vector<int64_t>{3048, 19563, 58303, 8870, 40228}));
  const DataSplits cifar = make_splits(numbered("cifar10", 50'000), named("cifar10"));
  EXPECT_EQ(cifar.train.size(), 44'500);
  EXPECT_EQ(first_indices(cifar.validation, 5),
            (std::vector<int64_t>{11841, 19602, 45519, 25747, 42642}));
  const DataSplits tiny = make_splits(numbered("tiny-imagenet", 100'000), named("tiny-imagenet"));
  EXPECT_EQ(tiny.validation.size(), 10'000);
  EXPECT_EQ(tiny.train.size(), 90'000);
  EXPECT_EQ(first_indices(tiny.validation, 5),
            (std::vector<int64_t>{3582, 60498, 53227, 21333, 3885}));
}

TEST(Splits, PartsAreDisjointAndCoverTheTrainingSet) {
  const DataSplits splits = make_splits(numbered("dogs-vs-cats", 1000, 0), named("dogs-vs-cats"));
  EXPECT_EQ(splits.train.size(), 800);
  EXPECT_EQ(splits.validation.size(), 100);
  EXPECT_EQ(splits.test.size(), 100);
  std::set<int64_t> all;
  for (const Dataset* part : {&splits.train, &splits.validation, &splits.test})
    for (const int64_t index : first_indices(*part, part->size())) all.insert(index);
  EXPECT_EQ(all.size(), 1000u);
}

TEST(Splits, OfYourOwnPicturesHaveEveryClassInItsProportion) {
  SourceData source = numbered("folder", 40, 0);
  source.train.labels = torch::arange(40).lt(10).to(torch::kInt64);  // 30 of class 0, 10 of 1
  const DataSplits splits = make_splits(source, named("folder"));
  EXPECT_EQ(splits.validation.size(), 4);
  EXPECT_EQ(splits.test.size(), 4);
  for (const Dataset* part : {&splits.validation, &splits.test})
    EXPECT_EQ(part->labels.sum().item<int64_t>(), 1);
  std::set<int64_t> all;
  for (const Dataset* part : {&splits.train, &splits.validation, &splits.test})
    for (const int64_t index : first_indices(*part, part->size())) all.insert(index);
  EXPECT_EQ(all.size(), 40u) << "the parts overlap";
}

TEST(Splits, CountsAndLimitsCanBeChosen) {
  DatasetOptions options = named("svhn");
  EXPECT_EQ(make_splits(numbered("svhn", 73'257), options).validation.size(), 7'325);
  options.validation = 100;
  options.limit_train = 30;
  options.limit_test = 4;
  const DataSplits splits = make_splits(numbered("svhn", 1000), options);
  EXPECT_EQ(splits.validation.size(), 100);
  EXPECT_EQ(splits.train.size(), 30);
  EXPECT_EQ(splits.test.size(), 4);
  options.validation = 1000;
  EXPECT_THAT(error_of([&] { make_splits(numbered("svhn", 1000), options); }),
              AllOf(HasSubstr("dataset.validation is 1,000"), HasSubstr("1,000 images")));
}

TEST(Splits, SplitByNameSaysWhatThereIs) {
  const DataSplits splits = make_splits(numbered("svhn", 100), named("svhn"));
  EXPECT_EQ(splits.split("test").size(), 10);
  EXPECT_EQ(splits.split_names(), (std::vector<std::string>{"train", "validation", "test"}));
  EXPECT_THAT(error_of([&] { splits.split("tset"); }), HasSubstr("did you mean test?"));
}

// smallNORB in small: images of every azimuth and elevation.
SourceData views(bool training_poses) {
  SourceData source = numbered("smallnorb", 18 * 9, 18 * 9);
  source.where = "norb";
  for (Dataset* part : {&source.train, &source.test}) {
    if (part == &source.train && !training_poses) continue;
    const torch::Tensor index = torch::arange(18 * 9, torch::kInt64);
    part->attributes["azimuth"] = index % 18 * 20;
    part->attributes["elevation"] = index.div(18, "floor") * 5 + 30;
  }
  return source;
}

TEST(SmallNorbProtocols, TrainOnAThirdOfTheViewsAndTestOnTheRest) {
  for (const std::string protocol : {"azimuth", "elevation"}) {
    DatasetOptions options = named("smallnorb");
    options.protocol = protocol;
    const DataSplits splits = make_splits(views(true), options);
    const std::set<int64_t> familiar = protocol == "azimuth"
                                           ? std::set<int64_t>{0, 20, 40, 300, 320, 340}
                                           : std::set<int64_t>{30, 35, 40};
    EXPECT_EQ(splits.train.size() + splits.validation.size(), 54);
    EXPECT_EQ(splits.validation.size(), 5);
    EXPECT_EQ(splits.test.size(), 108);
    EXPECT_EQ(splits.split("familiar").size(), 54);
    EXPECT_EQ(splits.split("novel").size(), 108);
    const auto check_views = [&](const Dataset& set, bool expected) {
      const torch::Tensor seen = set.attributes.at(protocol);
      for (int64_t i = 0; i < set.size(); ++i)
        EXPECT_EQ(familiar.count(seen[i].item<int64_t>()) != 0, expected);
    };
    check_views(splits.train, true);
    check_views(splits.validation, true);
    check_views(splits.split("familiar"), true);
    check_views(splits.test, false);
  }
}

TEST(SmallNorbProtocols, NeedTrainingPosesThatPlainTrainingDoesNot) {
  DatasetOptions options = named("smallnorb");
  EXPECT_EQ(make_splits(views(false), options).test.size(), 162);
  options.protocol = "azimuth";
  EXPECT_THAT(error_of([&] { make_splits(views(false), options); }),
              AllOf(HasSubstr("protocol azimuth needs the poses of the training images"),
                    HasSubstr("-info.mat")));
  options.name = "mnist";
  EXPECT_THAT(error_of([&] { make_splits(numbered("mnist", 100), options); }),
              HasSubstr("only smallnorb"));
}

TEST(FashionMnist, DebiansPackageIsFoundByItself) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP() << "package not installed";
  const TemporaryFolder empty;
  const DataSplits splits = load_dataset(named("fashion-mnist"), empty.path());
  EXPECT_EQ(splits.train.size(), 54'500);
  EXPECT_EQ(splits.validation.size(), 5'500);
  EXPECT_EQ(splits.test.size(), 10'000);
  EXPECT_EQ(splits.class_names.at(9), "Ankle boot");
  EXPECT_EQ(splits.test.labels[0].item<int64_t>(), 9);  // the first test image is an ankle boot
  const double mean = splits.train.images.to(torch::kFloat32).mean().item<double>() / 255;
  EXPECT_NEAR(mean, 0.286, 0.001);
  EXPECT_TRUE(verify_dataset(named("fashion-mnist"), empty.path()).fine());
}

TEST(LoadDataset, FindsTheLayoutsOfUnpackedArchives) {
  for (const char* home : {"mnist", "MNIST/raw"}) {
    const TemporaryFolder root;
    write_mnist(root / home, 40, 20);
    const DataSplits splits = load_dataset(named("mnist"), root.path());
    EXPECT_EQ(splits.train.size(), 36);
    EXPECT_EQ(splits.test.size(), 20);
  }
  const TemporaryFolder root;
  write_mnist(root / "elsewhere", 40, 20);
  DatasetOptions options = named("mnist");
  options.folder = (root / "elsewhere").string();
  EXPECT_EQ(load_dataset(options, root.path()).test.size(), 20);
}

TEST(LoadDataset, SaysWhereItLookedAndHowToGetIt) {
  const TemporaryFolder root;
  EXPECT_THAT(error_of([&] { load_dataset(named("cifar10"), root.path()); }),
              AllOf(HasSubstr("data_batch_1.bin"), HasSubstr((root / "cifar10").string()),
                    HasSubstr("remcaps data fetch cifar10")));
  EXPECT_THAT(error_of([&] { load_dataset(named("dogs-vs-cats"), root.path()); }),
              HasSubstr("kaggle.com"));
  EXPECT_THAT(error_of([&] { load_dataset(named("minst"), root.path()); }),
              HasSubstr("did you mean mnist?"));
  write_mnist(root / "mnist", 40, 20);
  fs::remove(root / "mnist" / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(error_of([&] { load_dataset(named("mnist"), root.path()); }),
              HasSubstr("t10k-labels-idx1-ubyte: is missing"));
}

// affNIST's official test file, with one image of a 7.
void write_affnist_test(const fs::path& path) {
  write_bytes(
      path, mat_file({mat_structure("affNISTdata",
                                    {{"image", mat_array("", {1600, 1}, std::string(1600, '\x05'))},
                                     {"label_int", mat_array("", {1, 1}, "\x07")}})},
                     /*compressed=*/true));
}

TEST(LoadDataset, AffnistTrainsOnExpandedMnistWithoutItsTestSet) {
  const TemporaryFolder root;
  write_mnist(root / "mnist", 40, 20);
  const DataSplits splits = load_dataset(named("affnist"), root.path());
  EXPECT_EQ(splits.train.images.sizes(), (torch::IntArrayRef{40, 1, 40, 40}));
  EXPECT_EQ(splits.validation.size(), 20);
  EXPECT_EQ(splits.split("expanded-test").size(), 20);
  EXPECT_EQ(splits.train.images[3][0][0].sum().item<int64_t>(), 0);  // padded
  EXPECT_EQ(splits.train.images[3][0][6][6].item<int>(), 3);
  EXPECT_THAT(error_of([&] { splits.split("test"); }),
              AllOf(HasSubstr("test.mat is missing"), HasSubstr("remcaps data fetch affnist")));
  if (!can_read_mat()) return;
  write_affnist_test(root / "affnist" / "test.mat");
  EXPECT_EQ(load_dataset(named("affnist"), root.path()).split("test").labels[0].item<int64_t>(), 7);
}

// MNIST with `test` digits: digit i is a bar of 8 x 12 pixels whose brightness is 100 + i.
void write_bars(const fs::path& folder, int64_t test) {
  write_mnist(folder, 40, 20);
  torch::Tensor images = torch::zeros({test, 28, 28}, torch::kUInt8);
  std::string labels;
  for (int64_t i = 0; i < test; ++i) {
    images[i].slice(0, 8, 20).slice(1, 10, 18).fill_(100 + i);
    labels += static_cast<char>(i % 10);
  }
  const auto count = static_cast<uint32_t>(test);
  write_bytes(folder / "t10k-images-idx3-ubyte",
              idx_bytes({count, 28, 28}, std::string(static_cast<const char*>(images.data_ptr()),
                                                     static_cast<size_t>(images.numel()))));
  write_bytes(folder / "t10k-labels-idx1-ubyte", idx_bytes({count}, labels));
}

TEST(GeneratedTest, IsReadAndMarkedUntilTheOfficialOneIsThere) {
  const TemporaryFolder root;
  write_bars(root / "mnist", 3);
  const DatasetDescriptor& affnist = find_dataset("affnist");
  const fs::path file = write_generated_test(affnist, root.path(), 42);
  EXPECT_EQ(file, root / "affnist" / "generated-test.safetensors");
  EXPECT_EQ(find_generated_test(affnist, "", root.path()), file);

  DatasetOptions options = named("affnist");
  const DataSplits splits = load_dataset(options, root.path());
  EXPECT_EQ(splits.test.images.sizes(), (torch::IntArrayRef{96, 1, 40, 40}));
  EXPECT_EQ(splits.test.labels[63].item<int64_t>(), 1);
  EXPECT_THAT(splits.test.note, AllOf(HasSubstr("generated"), HasSubstr("seed 42")));
  EXPECT_TRUE(splits.validation.note.empty());
  EXPECT_TRUE(splits.missing.empty());
  // A part of it and its prepared file are no more official.
  options.limit_test = 5;
  EXPECT_EQ(load_dataset(options, root.path()).test.note, splits.test.note);
  write_prepared(root / "affnist.safetensors", read_files(options, root.path()));
  EXPECT_EQ(load_dataset(options, root.path()).test.note, splits.test.note);
  const TemporaryFolder other;
  fs::rename(root / "affnist.safetensors", other / "affnist.safetensors");
  EXPECT_THAT(verify_dataset(options, other.path()).notes, Contains(HasSubstr("generated")));

  if (!can_read_mat()) return;
  write_affnist_test(root / "affnist" / "test.mat");
  EXPECT_EQ(load_dataset(options, root.path()).test.size(), 1);
  EXPECT_TRUE(load_dataset(options, root.path()).test.note.empty());
}

TEST(GeneratedTest, OnlyWhereARecipeIsKnown) {
  const TemporaryFolder root;
  EXPECT_THAT(error_of([&] { write_generated_test(find_dataset("svhn"), root.path(), 1); }),
              HasSubstr("svhn: no recipe is known"));
  EXPECT_THAT(error_of([&] { write_generated_test(find_dataset("affnist"), root.path(), 1); }),
              HasSubstr("remcaps data fetch mnist"));
  EXPECT_FALSE(fs::exists(root / "affnist"));
}

TEST(AffineDigits, KeepsAllInkAndStretchesItByTheRecipe) {
  constexpr int64_t kVersions = 400;
  Dataset bar;
  bar.images = torch::zeros({1, 1, 28, 28}, torch::kUInt8);
  bar.images.slice(2, 8, 20).slice(3, 10, 18).fill_(200);
  bar.labels = torch::full({1}, 7, torch::kInt64);
  const Dataset versions = affine_digits(bar, 40, kVersions, 5);
  EXPECT_TRUE(versions.labels.equal(torch::full({kVersions}, 7, torch::kInt64)));
  const torch::Tensor images = versions.images.to(torch::kFloat64).view({kVersions, 40, 40});
  EXPECT_EQ(images.max().item<double>(), 200);

  // Ink grows by the two scales, whatever rotation and shear do: 0.64 to 1.44 times, and 1 on
  // average. A bar that is cut off would have less.
  const torch::Tensor ink = images.sum({1, 2}) / (200.0 * 8 * 12);
  EXPECT_GT(ink.min().item<double>(), 0.63);
  EXPECT_LT(ink.min().item<double>(), 0.72);
  EXPECT_GT(ink.max().item<double>(), 1.36);
  EXPECT_LT(ink.max().item<double>(), 1.45);
  EXPECT_NEAR(ink.mean().item<double>(), 1, 0.02);

  // Its middle goes everywhere where the bar fits, and as often to the left as to the right.
  const torch::Tensor place = torch::arange(40).to(torch::kFloat64) + 0.5;
  for (const int64_t axis : {1, 2}) {
    const torch::Tensor middle = (images.sum(3 - axis) * place).sum(1) / images.sum({1, 2});
    EXPECT_GT(middle.min().item<double>(), 3);
    EXPECT_LT(middle.min().item<double>(), 8);
    EXPECT_GT(middle.max().item<double>(), 32);
    EXPECT_LT(middle.max().item<double>(), 37);
    EXPECT_NEAR(middle.mean().item<double>(), 20, 1.5);
    EXPECT_NEAR(middle.std().item<double>(), 27 / std::sqrt(12.0), 1.2);
  }

  // The tilt of the bar's long axis: at most 20 degrees and the shear's atan(0.2 * 1.2 / 0.8).
  const torch::Tensor x = place - 20, y = (place - 20).view({40, 1});
  const auto moment = [&](const torch::Tensor& weight) {
    return (images * weight).sum({1, 2}) / images.sum({1, 2});
  };
  const torch::Tensor mx = moment(x), my = moment(y);
  const torch::Tensor tilt =
      (moment(x * y) - mx * my) / (moment(y * y) - my * my);  // columns per row
  EXPECT_GT(tilt.abs().max().item<double>(), 0.3);
  EXPECT_LT(tilt.abs().max().item<double>(), 0.7);
  EXPECT_NEAR(tilt.mean().item<double>(), 0, 0.05);
}

TEST(AffineDigits, DependOnTheSeedAlone) {
  Dataset digits;
  digits.images = noise({6, 1, 28, 28});
  digits.labels = torch::arange(6, torch::kInt64);
  const Dataset once = affine_digits(digits, 40, 3, 1);
  EXPECT_TRUE(affine_digits(digits, 40, 3, 1).images.equal(once.images));
  EXPECT_FALSE(affine_digits(digits, 40, 3, 2).images.equal(once.images));
  // A digit alone has the versions it has among others; each version is another image.
  Dataset first;
  first.images = digits.images.slice(0, 0, 1);
  first.labels = digits.labels.slice(0, 0, 1);
  EXPECT_TRUE(affine_digits(first, 40, 3, 1).images.equal(once.images.slice(0, 0, 3)));
  EXPECT_FALSE(once.images[0].equal(once.images[1]));
}

TEST(DataRoot, CommandLineThenEnvironmentThenHome) {
  ScopedVariable variable("REMCAPS_DATA", "/from/environment");
  EXPECT_EQ(data_root("/from/flag"), "/from/flag");
  EXPECT_EQ(data_root(""), "/from/environment");
  variable.set(std::nullopt);
  const char* home = std::getenv("HOME");
  if (home != nullptr) {
    EXPECT_EQ(data_root(""), fs::path(home) / ".cache" / "remcaps");
  }
}

TEST(Prepared, GivesBackEveryPartAndIsPreferred) {
  const TemporaryFolder root;
  SourceData source = views(true);
  write_prepared(root / "smallnorb.safetensors", source);
  DatasetOptions options = named("smallnorb");
  options.protocol = "elevation";
  const DataSplits from_file = load_dataset(options, root.path());  // there are no other files
  const DataSplits direct = make_splits(views(true), options);
  EXPECT_TRUE(torch::equal(from_file.train.images, direct.train.images));
  EXPECT_TRUE(torch::equal(from_file.test.labels, direct.test.labels));
  EXPECT_TRUE(
      torch::equal(from_file.test.attributes.at("azimuth"), direct.test.attributes.at("azimuth")));
  EXPECT_EQ(from_file.class_names, direct.class_names);
}

TEST(Prepared, RejectsAnotherDataSetAndDamage) {
  const TemporaryFolder root;
  write_prepared(root / "svhn.safetensors", numbered("svhn", 30));
  fs::copy_file(root / "svhn.safetensors", root / "mnist.safetensors");
  EXPECT_THAT(error_of([&] { load_dataset(named("mnist"), root.path()); }),
              HasSubstr("holds the data set svhn; expected mnist"));
  truncate_file(root / "svhn.safetensors", fs::file_size(root / "svhn.safetensors") - 3);
  EXPECT_THAT(error_of([&] { load_dataset(named("svhn"), root.path()); }),
              AllOf(HasSubstr("svhn.safetensors"), HasSubstr("truncated")));
  SourceData wrong = numbered("cifar10", 30);
  wrong.train.labels[4] = 2;
  write_prepared(root / "cifar10.safetensors", wrong);
  EXPECT_THAT(error_of([&] { load_dataset(named("cifar10"), root.path()); }),
              HasSubstr("image 4 has the label 2; expected 0 to 1"));
}

TEST(Prepared, FolderOfImagesAtTheSizeAskedFor) {
  const TemporaryFolder root;
  for (const char* name : {"a", "b"})
    for (int i = 0; i < 10; ++i)
      write_png(root / "pets" / name / fmt::format("{}.png", i), plain_image(3, 20, 30, i));
  DatasetOptions options = named("folder");
  EXPECT_THAT(error_of([&] { load_dataset(options, root.path()); }), HasSubstr("dataset.folder"));
  options.folder = (root / "pets").string();
  options.image_size = 12;
  const SourceData source = read_source(options, root.path());
  EXPECT_EQ(source.train.images.sizes(), (torch::IntArrayRef{20, 3, 12, 12}));
  write_prepared(root / "pets" / "prepared.safetensors", source);
  EXPECT_EQ(read_source(options, root.path()).where, root / "pets" / "prepared.safetensors");
  // Another size is decoded again. It is refused if only the prepared file is left.
  options.image_size = 8;
  EXPECT_EQ(read_source(options, root.path()).train.images.size(3), 8);
  EXPECT_EQ(load_dataset(options, root.path()).class_names, (std::vector<std::string>{"a", "b"}));
}

TEST(Verify, ReportsEachThingThatIsWrongInOneLine) {
  const TemporaryFolder root;
  VerifyReport report = verify_dataset(named("mnist"), root.path());
  EXPECT_FALSE(report.present);
  EXPECT_THAT(report.problems, Contains(HasSubstr("mnist: not found")));
  write_mnist(root / "mnist", 40, 20);
  report = verify_dataset(named("mnist"), root.path());
  EXPECT_TRUE(report.present);
  EXPECT_FALSE(report.fine());
  EXPECT_EQ(report.problems.size(), 4u);  // every file has another size than MNIST's
  EXPECT_THAT(report.problems, Contains(AllOf(HasSubstr("train-images-idx3-ubyte: 31,376 bytes"),
                                              HasSubstr("expected 47,040,016"))));
}

TEST(Verify, ChecksEveryPictureOfAFolder) {
  const TemporaryFolder root;
  for (const char* name : {"a", "b"})
    for (int i = 0; i < 3; ++i)
      write_png(root / name / fmt::format("{}.png", i), plain_image(3, 20, 20, i));
  DatasetOptions options = named("folder");
  options.folder = root.path().string();
  VerifyReport report = verify_dataset(options, root.path());
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.train, 6);
  EXPECT_EQ(report.shape, (std::vector<int64_t>{3, 20, 20}));
  damage_file(root / "a" / "1.png", 50);
  truncate_file(root / "b" / "2.png", 40);
  report = verify_dataset(options, root.path());
  EXPECT_EQ(report.problems.size(), 2u);
  EXPECT_THAT(report.problems, Contains(HasSubstr("a/1.png")));
  EXPECT_THAT(report.problems, Contains(HasSubstr("b/2.png")));
}

TEST(Verify, ACopyThatWasWrittenAgainIsANoteAndAWrongCountAnError) {
  if (!can_read_mat()) GTEST_SKIP() << "built without libmatio";
  const TemporaryFolder root;
  const std::string labels("\x0a\x01\x02\x03\x04\x05\x06\x07\x08\x09", 10);
  for (const char* name : {"train_32x32.mat", "test_32x32.mat"})
    write_bytes(root / "svhn" / name,
                mat_file({mat_array("X", {32, 32, 3, 10}, std::string(30'720, '\x01')),
                          mat_array("y", {10, 1}, labels)},
                         true));
  const VerifyReport report = verify_dataset(named("svhn"), root.path());
  if (can_checksum()) {
    EXPECT_EQ(report.notes.size(), 2u);
    EXPECT_THAT(report.notes, Contains(HasSubstr("not the very file")));
  } else {
    EXPECT_THAT(report.notes, ElementsAre(HasSubstr("checksums were not compared")));
  }
  EXPECT_THAT(report.problems, Contains(HasSubstr("10 training images; expected 73,257")));
}

}  // namespace
}  // namespace remcaps::testing
