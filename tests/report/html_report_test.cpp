// The HTML report's data: codes of couplings, images, the page, and a whole report of real images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <regex>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/recipe/context.h"
#include "remcaps/report/html_report.h"
#include "remcaps/report/html_report_couplings.h"
#include "remcaps/report/html_report_run.h"
#include "remcaps/runs/weights.h"
#include "tests/data/fixtures.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// The page's side of encode_bytes().
std::string decode_bytes(const std::string& text, size_t size) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string encoded;
  uint32_t group = 0;
  int bits = 0;
  for (const char character : text) {
    if (character == '=') break;
    group = group << 6 | static_cast<uint32_t>(digits.find(character));
    if ((bits += 6) < 8) continue;
    bits -= 8;
    encoded += static_cast<char>(group >> bits & 0xff);
  }
  std::string bytes(size, '\0');
  uLongf length = size;
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &length,
                       reinterpret_cast<const Bytef*>(encoded.data()),
                       static_cast<uLong>(encoded.size())),
            Z_OK);
  EXPECT_EQ(length, size);
  return bytes;
}

std::string blob_of(const std::string& page, const json& reference) {
  const std::string open = fmt::format(R"(id="blob-{}">)", reference["blob"].get<int>());
  const size_t begin = page.find(open) + open.size();
  size_t size = reference["type"] == "uint16" ? 2 : 1;
  for (const auto& extent : reference["shape"]) size *= extent.get<size_t>();
  return decode_bytes(page.substr(begin, page.find('<', begin) - begin), size);
}

json data_of(const std::string& page) {
  const std::string open = R"(id="report-data">)";
  const size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(HtmlReportPage, PacksBytesOfAnyLength) {
  for (const size_t size : {0u, 1u, 2u, 3u, 1000u}) {
    std::string bytes;
    for (size_t k = 0; k < size; ++k) bytes += static_cast<char>(k * k * 31);
    EXPECT_EQ(decode_bytes(encode_bytes(bytes), size), bytes);
  }
}

TEST(HtmlReportPage, HoldsItsDataOnceAndAsksForNothing) {
  PageBlobs blobs;
  const json reference = blobs.add(torch::arange(6).to(torch::kUInt8).view({2, 3}));
  const std::string page = html_page(html_report_template(), {{"images", reference}}, blobs);
  EXPECT_EQ(blob_of(page, data_of(page)["images"]), std::string("\0\1\2\3\4\5", 6));
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, HasSubstr("base-uri 'none'; form-action 'none'\">"));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"((src|href)="?(https?:)?//)")));
}

TEST(HtmlReportPage, NamesCannotEndTheElementTheyStandIn) {
  const json report = {{"title", "</script><script>alert(1)</script>"}};
  const std::string page = html_page(html_report_template(), report, {});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert(1)")));
  EXPECT_EQ(data_of(page), report);
}

TEST(CouplingCodes, KeepTheLevelAndComeCloseToTheCoupling) {
  const Tensor couplings = torch::linspace(0, 1, 997);
  const std::vector<Quantizer> quantizers = {Quantizer::uniform(2),  Quantizer::uniform(6),
                                             Quantizer::uniform(11), Quantizer::uniform(21),
                                             Quantizer::bins(128),   Quantizer::uniform(256)};
  for (const Quantizer& quantizer : quantizers) {
    const CouplingCodes codes{quantizer};
    const Tensor levels = codes.levels_of(quantize(couplings, quantizer));
    const Tensor encoded = codes.encode(levels, couplings);
    const Tensor decoded =
        torch::tensor(codes.decode(), torch::kDouble).take(encoded.to(torch::kLong));
    EXPECT_TRUE(level_indices(decoded, quantizer).equal(level_indices(couplings, quantizer)))
        << quantizer.levels();
    const double step = (decoded - couplings).abs().max().item<double>();
    EXPECT_LT(step, 1.0 / 120) << quantizer.levels();
    EXPECT_LE(codes.decode().size(), 256u);
  }
}

TEST(CouplingCodes, OfAnUnquantizedLayerAre256Steps) {
  const CouplingCodes codes{std::nullopt};
  const Tensor couplings = torch::tensor({-0.2, 0.0, 0.5, 1.0, 1.3});
  const Tensor encoded = codes.encode(codes.levels_of(couplings), couplings);
  EXPECT_TRUE(encoded.equal(torch::tensor({0, 0, 128, 255, 255}).to(torch::kUInt8)));
}

TEST(CouplingCodes, TheQuantizedPassDecidesTheLevel) {
  const CouplingCodes codes{Quantizer::uniform(11)};
  // After another quantized layer, the plain pass can fall on another level.
  const Tensor encoded = codes.encode(torch::tensor({4}).to(torch::kUInt8), torch::tensor({0.51}));
  EXPECT_EQ(encoded[0].item<int64_t>() / 23, 4);
}

// Two images, four children on a map of 2 x 2, two classes; the first image is of class 1.
Forward small_forward() {
  RoutingTrace trace;
  trace.layer = "class";
  trace.coupling = torch::tensor({0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6,  //
                                  0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4})
                       .view({2, 4, 2});
  trace.child_activations = torch::full({2, 4}, 0.5);
  trace.grids = {{0, 1, 2, 2, 4, 2, 1}};
  Forward forward;
  forward.activations = torch::tensor({0.2, 0.9, 0.8, 0.1}).view({2, 2});
  forward.routings = {trace};
  return forward;
}

json explorer_within(size_t budget, PageBlobs& blobs) {
  ExplorerData data({Quantizer::uniform(11)}, 2);
  const Tensor rows = torch::arange(2);
  data.add_quantized(small_forward(), rows, {8, 8}, "net", {1, 8, 8});
  data.add_plain(small_forward(), rows);
  return data.to_json(blobs, budget);
}

TEST(ExplorerData, KeepsAllCouplingsWhereTheyFit) {
  PageBlobs blobs;
  const json explorer = explorer_within(1'000'000, blobs);
  EXPECT_EQ(explorer["predicted"], json({1, 0}));
  const json& layer = explorer["layers"][0];
  EXPECT_EQ(layer["columns"], "all");
  EXPECT_EQ(layer["couplings"]["shape"], json({2, 4, 2}));
  EXPECT_EQ(explorer["activations"]["type"], "uint16");
  EXPECT_TRUE(explorer["saliency"].is_null()) << "the page computes it from the couplings";
  const std::string codes =
      decode_bytes(blobs.texts()[layer["couplings"]["blob"].get<size_t>()], 16);
  for (size_t k = 0; k < 8; ++k) {
    const double decoded = layer["decode"][static_cast<uint8_t>(codes[k])].get<double>();
    EXPECT_NEAR(decoded, small_forward().routings[0].coupling.flatten()[k].item<double>(), 0.005);
  }
}

TEST(ExplorerData, KeepsWhatEachCapsuleContributes) {
  Forward forward = small_forward();
  RoutingTrace& trace = forward.routings[0];
  // To the predicted classes, 1 and 0: 2, -1, 0.5, 0 and 0, 0, 0, -4.
  trace.contribution =
      torch::tensor({9., 2., 9., -1., 9., 0.5, 9., 0., 0., 9., 0., 9., 0., 9., -4., 9.})
          .view({2, 4, 2});
  trace.bias_contribution = torch::full({2, 2}, 0.25);
  ExplorerData data({Quantizer::uniform(11)}, 2);
  data.add_quantized(forward, torch::arange(2), {8, 8}, "net", {1, 8, 8});
  data.add_plain(forward, torch::arange(2));
  PageBlobs blobs;
  const json parts = data.to_json(blobs, 1'000'000)["contributions"];
  EXPECT_EQ(parts["layer"], 0);
  EXPECT_EQ(parts["scale"], json({2.0, 4.0}));
  EXPECT_EQ(parts["positive"], json({2.5, 0.0}));
  EXPECT_EQ(parts["evidence"], json({1.75, -3.75}));
  EXPECT_EQ(parts["bias"], json({0.25, 0.25}));
  const std::string codes = decode_bytes(blobs.texts()[parts["values"]["blob"].get<size_t>()], 8);
  const std::vector<double> expected = {2, -1, 0.5, 0, 0, 0, 0, -4};
  for (size_t k = 0; k < 8; ++k)
    EXPECT_NEAR((static_cast<uint8_t>(codes[k]) - 128) / 127.0 * (k < 4 ? 2 : 4), expected[k],
                0.02);
  PageBlobs none;
  EXPECT_TRUE(data.to_json(none, 10)["contributions"].is_null());
}

// Random couplings, which do not compress: two images, 400 children on four maps, two classes.
json random_explorer_within(size_t budget, PageBlobs& blobs) {
  Forward forward = small_forward();
  torch::manual_seed(1);
  forward.routings[0].coupling = torch::rand({2, 400, 2});
  forward.routings[0].child_activations = torch::full({2, 400}, 0.5);
  forward.routings[0].grids = {{0, 4, 10, 10, 100, 10, 1}};
  ExplorerData data({Quantizer::uniform(11)}, 2);
  data.add_quantized(forward, torch::arange(2), {8, 8}, "net", {1, 8, 8});
  data.add_plain(forward, torch::arange(2));
  return data.to_json(blobs, budget);
}

size_t bytes_in(const PageBlobs& blobs) {
  size_t bytes = 0;
  for (const std::string& text : blobs.texts()) bytes += text.size();
  return bytes;
}

TEST(ExplorerData, KeepsThePredictedColumnWhereAllDoNotFit) {
  PageBlobs whole, part;
  EXPECT_EQ(random_explorer_within(1'000'000, whole)["layers"][0]["columns"], "all");
  const size_t budget = bytes_in(whole) - 1;
  const json layer = random_explorer_within(budget, part)["layers"][0];
  EXPECT_EQ(layer["columns"], "predicted");
  EXPECT_EQ(layer["couplings"]["shape"], json({2, 400}));
  EXPECT_LE(bytes_in(part), budget);
}

TEST(ExplorerData, KeepsSaliencyMapsWhereNoCouplingsFit) {
  PageBlobs blobs;
  const json explorer = random_explorer_within(500, blobs);
  EXPECT_EQ(explorer["layers"][0]["columns"], "none");
  EXPECT_EQ(explorer["saliency"]["shape"], json({2, 8, 8}));
  EXPECT_EQ(explorer["saliency_max"].size(), 2);
  EXPECT_LE(bytes_in(blobs), 500u);
}

Dataset grey_images(int64_t count, int64_t side) {
  Dataset data;
  data.images = torch::arange(count).view({-1, 1, 1, 1}).expand({count, 1, side, side});
  data.images = data.images.remainder(256).to(torch::kUInt8).contiguous();
  data.labels = torch::arange(count).remainder(2);
  return data;
}

TEST(ReportImages, AreTheSameOnesForEveryRun) {
  const ReportImages one(grey_images(100, 8), {"a", "b"}, {}, 20);
  const ReportImages other(grey_images(100, 8), {"a", "b"}, {}, 20);
  EXPECT_EQ(one.places(), other.places());
  EXPECT_EQ(one.places().size(), 20u);
  EXPECT_TRUE(std::is_sorted(one.places().begin(), one.places().end()));
}

TEST(ReportImages, LargeOnesAreShownSmall) {
  Dataset data;
  data.images = torch::full({60, 3, 128, 128}, 7).to(torch::kUInt8);
  data.labels = torch::zeros({60}, torch::kLong);
  ReportImages images(data, {"a"}, {}, 60, /*share=*/0.1);
  const std::vector<int64_t> size = images.shown_size();
  EXPECT_LE(size[0] * size[1] * 3 * 60, 300'000);
  EXPECT_GE(size[0], 24);
  PageBlobs blobs;
  const json described = images.to_json(blobs);
  EXPECT_EQ(described["images"]["shape"], json({60, 3, size[0], size[1]}));
}

TEST(ReportImages, TheGalleryHoldsAnImageOnceAndMeans) {
  ReportImages images(grey_images(10, 8), {"a", "b"}, {}, 4);
  EXPECT_EQ(images.add_to_gallery(7), images.add_to_gallery(7));
  const int64_t mean = images.add_mean_to_gallery({2, 6});
  PageBlobs blobs;
  const json gallery = images.to_json(blobs)["gallery"];
  EXPECT_EQ(gallery["shape"], json({2, 1, 8, 8}));
  const std::string bytes = decode_bytes(blobs.texts()[gallery["blob"].get<size_t>()], 2 * 64);
  EXPECT_EQ(bytes[static_cast<size_t>(mean) * 64], 4);
}

class HtmlReport : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
      GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  }

  static HtmlReportOptions of(const std::vector<std::string>& runs) {
    HtmlReportOptions options;
    options.runs = runs;
    return options;
  }

  // A network that was never trained has parse trees as well.
  std::filesystem::path weights(const std::string& model, int64_t seed) {
    const YAML::Node node = YAML::Load(fmt::format(
        "{{dataset: {{name: fashion-mnist, limit_train: 10, limit_test: 60, validation: 10}}, "
        "model: {{name: {}}}, train: {{seed: {}}}}}",
        model, seed));
    WeightsInfo info;
    info.recipe = parse_recipe(node, "fashion-mnist/" + model);
    info.context = *known_context(info.recipe);
    for (int c = 0; c < 10; ++c) info.class_names.push_back(fmt::format("<class {}>", c));
    const auto network = build_model(info.recipe, info.context);
    const auto path = folder_ / fmt::format("{}-{}.safetensors", model, seed);
    save_weights(path, *network, info);
    return path;
  }

  TemporaryFolder folder_;
  const ScopedVariable recipes_ = {"REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES};
};

TEST_F(HtmlReport, OfTwoRunsSharesTheirImages) {
  HtmlReportOptions options;
  options.samples = 25;
  const auto file = folder_ / "report.html";
  options.runs = {weights("eff-capsnet", 1), weights("eff-capsnet", 2)};
  const HtmlReportSummary summary = write_html_report(options, file);
  EXPECT_EQ(summary.runs, (std::vector<std::string>{"eff-capsnet, seed 1", "eff-capsnet, seed 2"}));
  const std::string page = read_file(file);
  EXPECT_EQ(summary.bytes, page.size());
  const json report = data_of(page);
  EXPECT_EQ(report["title"], "eff-capsnet on fashion-mnist");
  ASSERT_EQ(report["datasets"].size(), 1);
  EXPECT_EQ(report["datasets"][0]["samples"], 60);
  EXPECT_EQ(report["datasets"][0]["images"]["shape"], json({25, 1, 28, 28}));
  ASSERT_EQ(report["runs"].size(), 2);
  for (const json& run : report["runs"]) {
    EXPECT_EQ(run["dataset"], 0);
    EXPECT_EQ(run["parameters"], 161824);
    EXPECT_EQ(run["layers"][0]["children"], 16);
    EXPECT_EQ(run["layers"][0]["levels"], 11);
    EXPECT_EQ(run["explorer"]["layers"][0]["couplings"]["shape"], json({25, 16, 10}));
    EXPECT_EQ(run["explorer"]["predicted"].size(), 25);
    int64_t images = 0;
    for (size_t c = 0; c < 10; ++c) {
      images += run["samples_per_class"][c].get<int64_t>();
      int64_t listed = 0;
      for (const json& tree : run["dictionary"][c]) listed += tree["count"].get<int64_t>();
      EXPECT_LE(listed, run["samples_per_class"][c].get<int64_t>());
      EXPECT_EQ(run["dictionary"][c].empty(), run["samples_per_class"][c] == 0);
    }
    EXPECT_EQ(images, 60);
  }
}

TEST_F(HtmlReport, HoldsTheNetworksThatFit) {
  HtmlReportOptions options;
  options.samples = 5;
  options.runs = {weights("eff-capsnet", 1), weights("eff-capsnet", 2)};
  const auto networks = [&] {
    write_html_report(options, folder_ / "report.html");
    const json report = data_of(read_file(folder_ / "report.html"));
    EXPECT_GT(report["module"]["shape"][0], 100'000);
    int64_t held = 0;
    for (const json& run : report["runs"]) {
      const std::string why = run["no_network"];
      EXPECT_EQ(why.empty(), !run["network"].is_null());
      if (why.empty())
        ++held;
      else
        EXPECT_THAT(why, HasSubstr("would make the report too large"));
    }
    return held;
  };
  EXPECT_EQ(networks(), 2);
  options.most_bytes = std::filesystem::file_size(folder_ / "report.html") - 100'000;
  EXPECT_EQ(networks(), 1);
  EXPECT_LE(std::filesystem::file_size(folder_ / "report.html"), options.most_bytes);
  options.most_bytes = 0;
  EXPECT_EQ(networks(), 0);
}

TEST_F(HtmlReport, ThePaperStandsBesideItsOwnExperimentsOnly) {
  write_mnist(folder_.path(), 40, 20);
  const auto run_with = [&](std::vector<std::string> overrides) {
    overrides.push_back("dataset.folder=" + folder_.path().string());
    WeightsInfo info;
    info.recipe = load_recipe("mnist/eff-capsnet", overrides);
    info.context = *known_context(info.recipe);
    info.class_names.assign(10, "digit");
    const auto network = build_model(info.recipe, info.context);
    save_weights(folder_ / "weights.safetensors", *network, info);
    write_html_report(of({folder_ / "weights.safetensors"}), folder_ / "report.html");
    return data_of(read_file(folder_ / "report.html"))["runs"][0];
  };
  json run = run_with({"precision=bf16", "train.epochs=2"});
  EXPECT_EQ(run["changed"], (json{{"precision", "bf16"}, {"train.epochs", "2"}}));
  EXPECT_EQ(run["paper"]["arm"], "Q");
  EXPECT_EQ(run["paper"]["accuracy"], json({99.57, 0.48}));

  run = run_with({"train.lr=9", "model.routing.algorithm=scaled-distance"});
  EXPECT_EQ(run["changed"],
            (json{{"train.lr", "9"}, {"model.routing.algorithm", "scaled-distance"}}));
  EXPECT_TRUE(run["paper"].is_null());
  EXPECT_TRUE(run_with({"pruning.strategy=lobster"})["paper"].is_null());
}

TEST_F(HtmlReport, NamesTheCheckpointOfARunAndWhatWasExported) {
  const auto best = folder_ / "best.safetensors", small = folder_ / "small.safetensors";
  std::filesystem::rename(weights("eff-capsnet", 1), best);
  const TensorFile file(best);
  Metadata metadata = file.metadata();
  metadata["card"] = "{}";
  save_safetensors(small, file.load_all(), metadata);
  const auto page = folder_ / "report.html";
  write_html_report(of({best, small}), page);
  const json runs = data_of(read_file(page))["runs"];
  EXPECT_EQ(runs[0]["checkpoint"], "best");
  EXPECT_EQ(runs[1]["checkpoint"], "exported");
}

TEST_F(HtmlReport, TheCodesAreThoseOfTheDictionaries) {
  HtmlReportOptions options;
  options.samples = 60;  // all images: the explorer's trees are the dictionaries'
  const auto file = folder_ / "report.html";
  options.runs = {weights("eff-capsnet", 3)};
  write_html_report(options, file);
  const std::string page = read_file(file);
  const json run = data_of(page)["runs"][0];
  const std::string codes = blob_of(page, run["explorer"]["layers"][0]["couplings"]);
  std::vector<std::set<std::string>> keys(10);
  for (size_t image = 0; image < 60; ++image) {
    const size_t predicted = run["explorer"]["predicted"][image].get<size_t>();
    std::string key;
    for (size_t i = 0; i < 16; ++i)
      key += static_cast<char>(static_cast<uint8_t>(codes[(image * 16 + i) * 10 + predicted]) / 23);
    keys[predicted].insert(key);
  }
  for (size_t c = 0; c < 10; ++c) {
    EXPECT_EQ(run["keys_per_class"][c], keys[c].size()) << c;
    size_t varying = 0;
    for (size_t i = 0; i < 16; ++i) {
      std::set<char> levels;
      for (const std::string& key : keys[c]) levels.insert(key[i]);
      varying += levels.size() > 1;
    }
    EXPECT_EQ(run["varying_per_class"][c], varying) << c;
  }
  EXPECT_EQ(run["key_couplings"], 16);
}

// Two runs that differ only in the size to which pictures are decoded.
TEST_F(HtmlReport, RunsWithOtherImageSizesHaveTheirOwnImages) {
  for (int k = 0; k < 12; ++k)
    write_png(folder_ / fmt::format("pictures/{}/{}.png", k % 2 ? "cat" : "dog", k),
              noise({1, 40, 40}));
  const auto weights_of_size = [&](int64_t side) {
    const YAML::Node node = YAML::Load(
        fmt::format("{{dataset: {{name: folder, folder: '{}', image_size: {}}}, "
                    "model: {{name: dr-capsnet, conv_channels: 4, primary_types: 2, "
                    "primary_dim: 4, conv_kernel: 5, primary_kernel: 5, primary_stride: 3}}}}",
                    (folder_ / "pictures").string(), side));
    WeightsInfo info;
    info.recipe = parse_recipe(node, fmt::format("own/size-{}", side));
    const DataSplits splits = load_dataset(info.recipe.dataset, folder_.path());
    info.context = model_context(info.recipe, splits);
    info.class_names = splits.class_names;
    const auto path = folder_ / fmt::format("size-{}.safetensors", side);
    save_weights(path, *build_model(info.recipe, info.context), info);
    return path;
  };
  HtmlReportOptions options = of({weights_of_size(20), weights_of_size(32), weights_of_size(20)});
  options.split = "train";
  write_html_report(options, folder_ / "report.html");
  const json report = data_of(read_file(folder_ / "report.html"));
  ASSERT_EQ(report["datasets"].size(), 2);
  EXPECT_EQ(report["datasets"][0]["images"]["shape"][3], 20);
  EXPECT_EQ(report["datasets"][1]["images"]["shape"][3], 32);
  EXPECT_EQ(report["runs"][2]["dataset"], 0) << "the same images are shared";
  const json& names = report["datasets"][0]["names"];
  ASSERT_EQ(names.size(), report["datasets"][0]["labels"].size());
  EXPECT_THAT(names[0].get<std::string>(), ::testing::EndsWith(".png"));
}

TEST_F(HtmlReport, NothingIsLeftBehindWhereARunIsMissing) {
  const auto file = folder_ / "report.html";
  EXPECT_THROW(write_html_report(of({folder_ / "no-such-run"}), file), Error);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(HtmlReport, AFolderInItsPlaceIsFoundBeforeAnythingIsMeasured) {
  try {
    write_html_report(of({folder_ / "no-such-run"}), folder_.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a folder; expected a file to write"));
  }
}

}  // namespace
}  // namespace remcaps::testing
