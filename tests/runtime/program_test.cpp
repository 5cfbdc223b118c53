// The file format, the C API and remcaps-run, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/c/remcaps.h"
#include "tests/models/make.h"
#include "tests/runtime/exported.h"

namespace remcaps {
namespace {

using nlohmann::json;
using testing::floats_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

struct Output {
  int exit_code = -1;
  std::string text;  ///< stdout and stderr
};

Output shell(const std::string& command) {
  Output output;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  for (size_t got; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    output.text.append(part.data(), got);
  output.exit_code = WEXITSTATUS(::pclose(pipe));
  return output;
}

class SmallNetwork : public ::testing::Test {
 protected:
  SmallNetwork() {
    torch::manual_seed(5);
    model_ = testing::make(
        "dr-capsnet", testing::images(1, 28, 28, 3),
        "{conv_channels: 4, conv_stride: 2, primary_types: 2, primary_kernel: 5, primary_dim: 4, "
        "class_dim: 5}");
    model_->eval();
    WeightsInfo info;
    info.context = testing::images(1, 28, 28, 3);
    info.recipe.name = "test/small";
    info.recipe.model = "dr-capsnet";
    info.class_names = {"cat", "dog", "owl"};
    testing::write_exported(file_, *model_, info);
  }

  // The same file with other metadata.
  std::filesystem::path rewritten(const std::function<void(Metadata&)>& change) const {
    const SafetensorsFile file(file_);
    Metadata metadata = file.metadata();
    change(metadata);
    const auto path = folder_ / "changed.safetensors";
    write_safetensors(path, file.tensors(), metadata);
    return path;
  }

  static std::string refusal(const std::filesystem::path& path) {
    try {
      const runtime::Network network(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "small.safetensors";
  std::shared_ptr<CapsNet> model_;
};

TEST_F(SmallNetwork, AFileWithoutAGraphIsRefused) {
  EXPECT_THAT(refusal(rewritten([](Metadata& metadata) { metadata.erase("graph"); })),
              HasSubstr("has no graph"));
  EXPECT_THAT(refusal(rewritten([](Metadata& metadata) { metadata["graph"] = "{"; })),
              HasSubstr("damaged"));
  EXPECT_THAT(refusal(folder_ / "absent"), HasSubstr("cannot read"));
}

TEST_F(SmallNetwork, AnUnknownOpIsRefused) {
  EXPECT_THAT(refusal(rewritten([](Metadata& metadata) {
                json graph = json::parse(metadata["graph"]);
                graph["nodes"][1]["op"] = "softmax";
                metadata["graph"] = graph.dump();
              })),
              HasSubstr("unknown op softmax"));
}

TEST_F(SmallNetwork, APictureIsNotResizedToGigabytes) {
  EXPECT_THAT(refusal(rewritten([](Metadata& metadata) {
                json graph = json::parse(metadata["graph"]);
                graph["input"]["resize"] = 30'000;
                metadata["graph"] = graph.dump();
              })),
              HasSubstr("its graph resizes pictures to 30000; expected at most 4096"));
}

// Changes one value somewhere in the tree.
void damage(json& value, std::mt19937& random) {
  if ((value.is_object() || value.is_array()) && !value.empty() && random() % 8 != 0) {
    auto item = value.begin();
    std::advance(item, random() % value.size());
    return damage(*item, random);
  }
  const std::array<json, 9> others = {
      0, -1, 1e18, 3, 0.5, "weight", json::array(), json::object(), nullptr};
  value = others[random() % others.size()];
}

TEST_F(SmallNetwork, ADamagedGraphIsRefusedOrStillRuns) {
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    const auto path = rewritten([&](Metadata& metadata) {
      json graph = json::parse(metadata["graph"]);
      damage(graph, random);
      metadata["graph"] = graph.dump();
    });
    try {
      const runtime::Network network(path);
      if (network.input_floats() < 10'000) {
        const std::vector<float> image(static_cast<size_t>(network.input_floats()));
        const auto answer =
            network.run(image, {.couplings = true, .quantize = true, .contributions = true});
        if (network.has_saliency()) network.saliency(answer, 0, 0);
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 50);
}

TEST_F(SmallNetwork, TheCApiGivesTheAnswersOfTheNetwork) {
  remcaps_network* network = remcaps_open(file_.c_str());
  ASSERT_NE(network, nullptr) << remcaps_error();
  remcaps_description described;
  ASSERT_EQ(remcaps_describe(network, &described), 0);
  EXPECT_STREQ(described.name, "dr-capsnet");
  EXPECT_EQ(described.classes, 3);
  EXPECT_EQ(described.pose_size, 5);
  ASSERT_EQ(described.routing_layers, 1);
  remcaps_layer layer;
  ASSERT_EQ(remcaps_describe_layer(network, 0, &layer), 0);
  EXPECT_STREQ(layer.name, "class");
  EXPECT_STREQ(remcaps_class_name(network, 2), "owl");

  const torch::NoGradGuard no_grad;
  const Tensor image = torch::rand({1, 1, 28, 28});
  const Forward expected = model_->forward(image);
  std::vector<float> lengths(3), poses(15);
  ASSERT_EQ(
      remcaps_classify_floats(network, image.data_ptr<float>(), 1, lengths.data(), poses.data()),
      0);
  for (size_t j = 0; j < 3; ++j)
    EXPECT_NEAR(lengths[j], expected.activations[0][static_cast<int64_t>(j)].item<float>(), 1e-5);

  std::vector<float> couplings(static_cast<size_t>(layer.children * layer.parents));
  ASSERT_EQ(remcaps_couplings(network, image.data_ptr<float>(), 0, 0, couplings.data()), 0);
  EXPECT_NEAR(couplings[0] + couplings[1] + couplings[2], 1, 1e-5);
  std::vector<uint8_t> levels(couplings.size()), key(static_cast<size_t>(layer.key_length));
  ASSERT_EQ(remcaps_levels(network, image.data_ptr<float>(), 0, levels.data()), 0);
  int64_t predicted = -1;
  ASSERT_EQ(remcaps_tree_key(network, image.data_ptr<float>(), 0, key.data(), &predicted), 0);
  ASSERT_GE(predicted, 0);
  for (int64_t i = 0; i < layer.children; ++i)  // two levels in a byte, the first in the low half
    EXPECT_EQ(key[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 0xf,
              levels[static_cast<size_t>(i * 3 + predicted)]);

  EXPECT_EQ(remcaps_couplings(network, image.data_ptr<float>(), 1, 0, couplings.data()), -1);
  EXPECT_STREQ(remcaps_error(), "routing layer 1; the network has 1");
  EXPECT_EQ(remcaps_set_threads(network, 0), -1);
  EXPECT_EQ(remcaps_class_name(network, 3), nullptr);
  EXPECT_EQ(remcaps_open("absent"), nullptr);
  EXPECT_THAT(remcaps_error(), HasSubstr("absent: cannot read"));
  remcaps_close(network);
  remcaps_close(nullptr);
}

// A dictionary as `remcaps entropy --save` writes it, of trees with one level each.
std::filesystem::path save_trees(const std::filesystem::path& path, int64_t children,
                                 const std::vector<uint8_t>& tree_levels,
                                 const std::vector<std::vector<uint8_t>>& trees,
                                 const std::vector<int64_t>& counts,
                                 const std::vector<int64_t>& classes) {
  std::vector<uint8_t> keys(tree_levels.size() * static_cast<size_t>(children));
  for (size_t tree = 0; tree < tree_levels.size(); ++tree)
    std::fill_n(keys.begin() + static_cast<int64_t>(tree) * children, children, tree_levels[tree]);
  for (const auto& tree : trees) keys.insert(keys.end(), tree.begin(), tree.end());
  const Quantizer quantizer = Quantizer::uniform(11);
  const auto count = static_cast<int64_t>(counts.size());
  write_safetensors(
      path,
      {{"keys", {ElementType::kUInt8, {count, children}, std::as_bytes(std::span(keys))}},
       {"counts", {ElementType::kInt64, {count}, std::as_bytes(std::span(counts))}},
       {"classes", {ElementType::kInt64, {count}, std::as_bytes(std::span(classes))}},
       {"levels", {ElementType::kFloat32, {11}, std::as_bytes(std::span(quantizer.centres()))}}});
  return path;
}

TEST_F(SmallNetwork, ATreeHasItsPlaceInTheDictionaryOfItsClass) {
  remcaps_network* network = remcaps_open(file_.c_str());
  remcaps_layer layer;
  ASSERT_EQ(remcaps_describe_layer(network, 0, &layer), 0);
  ASSERT_EQ(layer.levels, 11);
  const Tensor image = torch::rand({1, 1, 28, 28});
  std::vector<uint8_t> key(static_cast<size_t>(layer.key_length)), own;
  int64_t predicted = -1;
  ASSERT_EQ(remcaps_tree_key(network, image.data_ptr<float>(), 0, key.data(), &predicted), 0);
  for (int64_t i = 0; i < layer.children; ++i)
    own.push_back(key[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 0xf);
  const auto path = save_trees(folder_ / "trees", layer.children, {7, 8, 9}, {own}, {30, 5, 90, 12},
                               {predicted, predicted, (predicted + 1) % 3, predicted});
  remcaps_dictionary* dictionary = remcaps_open_dictionary(path.c_str(), network);
  ASSERT_NE(dictionary, nullptr) << remcaps_error();
  remcaps_tree_place place;
  ASSERT_EQ(remcaps_find_tree(dictionary, key.data(), predicted, &place), 0);
  EXPECT_EQ(place.images, 12);
  EXPECT_EQ(place.class_images, 47);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.class_trees, 3);
  ASSERT_EQ(remcaps_find_tree(dictionary, key.data(), (predicted + 1) % 3, &place), 0);
  EXPECT_EQ(place.images, 0);
  EXPECT_EQ(place.class_images, 90);
  EXPECT_EQ(remcaps_find_tree(dictionary, key.data(), 3, &place), -1);
  remcaps_close_dictionary(dictionary);

  const auto other = save_trees(folder_ / "other", layer.children + 1, {7}, {}, {30}, {0});
  EXPECT_EQ(remcaps_open_dictionary(other.c_str(), network), nullptr);
  EXPECT_THAT(remcaps_error(), HasSubstr("not those of this network"));
  const auto twice = save_trees(folder_ / "twice", layer.children, {7, 7}, {}, {1, 2}, {0, 0});
  EXPECT_EQ(remcaps_open_dictionary(twice.c_str(), network), nullptr);
  EXPECT_EQ(remcaps_open_dictionary(file_.c_str(), network), nullptr);
  remcaps_close(network);
}

TEST_F(SmallNetwork, TheCApiGivesASaliencyMap) {
  remcaps_network* network = remcaps_open(file_.c_str());
  const Tensor image = torch::rand({1, 1, 28, 28});
  std::vector<float> map(28 * 28), of_class(28 * 28);
  ASSERT_EQ(remcaps_saliency(network, image.data_ptr<float>(), -1, map.data()), 0);
  EXPECT_GE(*std::min_element(map.begin(), map.end()), 0);
  EXPECT_GT(*std::max_element(map.begin(), map.end()), 0);
  std::vector<float> lengths(3);
  remcaps_classify_floats(network, image.data_ptr<float>(), 1, lengths.data(), nullptr);
  const int64_t longest = std::max_element(lengths.begin(), lengths.end()) - lengths.begin();
  for (int64_t j = 0; j < 3; ++j) {
    ASSERT_EQ(remcaps_saliency(network, image.data_ptr<float>(), j, of_class.data()), 0);
    EXPECT_EQ(of_class == map, j == longest);
  }
  EXPECT_EQ(remcaps_saliency(network, image.data_ptr<float>(), 3, map.data()), -1);
  remcaps_close(network);
}

TEST_F(SmallNetwork, SeveralThreadsUseOneNetwork) {
  const runtime::Network network(file_);
  const std::vector<float> images = floats_of(torch::rand({5, 1, 28, 28}));
  const runtime::Answer expected = network.run(images);
  std::array<std::vector<float>, 4> found;
  std::vector<std::thread> threads;
  for (auto& lengths : found)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) lengths = network.run(images).lengths;
    });
  for (auto& thread : threads) thread.join();
  for (const auto& lengths : found) EXPECT_EQ(lengths, expected.lengths);
}

TEST_F(SmallNetwork, RemcapsRunClassifiesPictures) {
  const torch::NoGradGuard no_grad;
  const Output shown =
      shell(fmt::format("{} {} {} --json", REMCAPS_RUN, file_.string(), REMCAPS_PICTURE));
  ASSERT_EQ(shown.exit_code, 0) << shown.text;
  const json answer = json::parse(shown.text);
  LoadedRun run;
  run.model = model_;
  const Tensor expected = model_->forward(run.read_input(REMCAPS_PICTURE)).activations[0];
  const auto lengths = answer["predictions"][0]["lengths"].get<std::vector<float>>();
  ASSERT_EQ(lengths.size(), 3u);
  for (int64_t j = 0; j < 3; ++j)
    EXPECT_NEAR(lengths[static_cast<size_t>(j)], expected[j].item<float>(), 1e-5);
  EXPECT_EQ(answer["predictions"][0]["tree"]["keys"]["class"].get<std::string>().size(), 32u);

  const auto trees = save_trees(
      folder_ / "trees", runtime::Network(file_).routing_layers()[0].children, {7}, {}, {30}, {0});
  const Output more = shell(fmt::format("{} {} {} --json --saliency --dictionary {}", REMCAPS_RUN,
                                        file_.string(), REMCAPS_PICTURE, trees.string()));
  ASSERT_EQ(more.exit_code, 0) << more.text;
  const json shown_more = json::parse(more.text)["predictions"][0];
  EXPECT_EQ(shown_more["saliency"].size(), 28u);
  EXPECT_EQ(shown_more["saliency"][27].size(), 28u);
  EXPECT_EQ(shown_more["tree"]["dictionary"]["images"], 0);

  const Output text =
      shell(fmt::format("{} {} {} --top 2", REMCAPS_RUN, file_.string(), REMCAPS_PICTURE));
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(std::count(text.text.begin(), text.text.end(), '\n'), 1);
}

TEST_F(SmallNetwork, RemcapsRunRefusesInOneLine) {
  for (const std::string& arguments :
       {file_.string() + " absent.png", std::string("absent.safetensors ") + REMCAPS_PICTURE,
        std::string(REMCAPS_MODELS_FOLDER) + "/README.md " + REMCAPS_PICTURE}) {
    const Output output = shell(std::string(REMCAPS_RUN) + " " + arguments);
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_EQ(std::count(output.text.begin(), output.text.end(), '\n'), 1) << output.text;
  }
  EXPECT_EQ(shell(std::string(REMCAPS_RUN) + " --absent").exit_code, 2);
  EXPECT_EQ(shell(fmt::format("{} {} {} --saliency", REMCAPS_RUN, file_.string(), REMCAPS_PICTURE))
                .exit_code,
            2);
}

TEST_F(SmallNetwork, RemcapsRunGoesOnAfterAPictureThatCannotBeRead) {
  const std::string command =
      fmt::format("{} {} absent.png {}", REMCAPS_RUN, file_.string(), REMCAPS_PICTURE);
  const Output text = shell(command);
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.text, HasSubstr(REMCAPS_PICTURE));
  EXPECT_THAT(text.text, HasSubstr("1 of 2 pictures have no answer"));
  const json shown = json::parse(shell("(" + command + " --json 2> /dev/null)").text);
  EXPECT_EQ(shown["predictions"].size(), 1u);
  EXPECT_EQ(shown["unreadable"][0]["image"], "absent.png");
}

TEST_F(SmallNetwork, RemcapsRunPrintsNamesAsText) {
  const auto hostile = rewritten([](Metadata& metadata) {
    std::string& graph = metadata["graph"];
    graph.replace(graph.find("\"cat\""), 5, "\"\\u001b[2Jc\\nat\"");
  });
  const Output shown =
      shell(fmt::format("{} {} {} --top 3", REMCAPS_RUN, hostile.string(), REMCAPS_PICTURE));
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.text, HasSubstr("\\x1b[2Jc\\nat"));
  EXPECT_EQ(std::count(shown.text.begin(), shown.text.end(), '\n'), 1);
}

TEST_F(SmallNetwork, RemcapsRunSaysThatItsOutputIsLost) {
  const Output lost =
      shell(fmt::format("({} {} {} > /dev/full)", REMCAPS_RUN, file_.string(), REMCAPS_PICTURE));
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_EQ(lost.text, "remcaps-run: stdout: cannot write: No space left on device\n");
}

TEST_F(SmallNetwork, TheExampleInCClassifiesAPicture) {
  const auto picture = folder_ / "picture.pgm";
  std::ofstream(picture, std::ios::binary) << "P5\n28 28\n255\n" << std::string(28 * 28, '\x40');
  const Output output =
      shell(fmt::format("{} {} {}", REMCAPS_EXAMPLE, file_.string(), picture.string()));
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("predicted"));
  EXPECT_NE(
      shell(fmt::format("{} {} {}", REMCAPS_EXAMPLE, picture.string(), picture.string())).exit_code,
      0);
}

}  // namespace
}  // namespace remcaps
