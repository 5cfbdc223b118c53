// ONNX Runtime gives the answers of the runtime, which gives those of the libtorch path. Needs
// Node.js and the packages of web/ (`make test-web`); without them these tests are skipped.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/data/batches.h"
#include "remcaps/onnx/export.h"
#include "remcaps/tensors/safetensors.h"
#include "tests/models/make.h"
#include "tests/runtime/exported.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::TemporaryFolder;

class OnnxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(REMCAPS_WEB_FOLDER) / "node_modules/onnxruntime-node") ||
        std::system("node --version > /dev/null 2>&1") != 0)
      GTEST_SKIP() << "no Node.js with onnxruntime-node; `make test-web` installs the package";
  }

  // Writes the network that lies at network.safetensors as ONNX, with the answers for the images.
  void write_case(const std::string& name, const std::vector<float>& images) {
    const runtime::Network network(folder_ / "network.safetensors");
    const auto batch = static_cast<int64_t>(images.size()) / network.input_floats();
    const NetworkGraph& graph = network.graph();
    const runtime::Answer exact = network.run(images, {.couplings = true});
    for (const bool rounds : {false, true}) {
      const std::string file = name + (rounds ? "-levels" : "");
      write_onnx(SafetensorsFile(folder_ / "network.safetensors"), folder_ / (file + ".onnx"),
                 rounds ? graph.levels : std::vector<int64_t>());
      const runtime::Answer answer = network.run(images, {.couplings = true, .quantize = rounds});
      json couplings = json::array();
      for (size_t layer = 0; layer < network.routing_layers().size(); ++layer) {
        const runtime::RoutingLayer& routed = network.routing_layers()[layer];
        json item = {{"name", "couplings_" + routed.name},
                     {"shape", {batch, routed.positions, routed.children, routed.parents}},
                     {"rounded", rounds && routed.levels > 0},
                     {"values", answer.couplings[layer]}};
        // Rounding changes the inputs of later layers, so ties can be recognised in the first one
        // only.
        if (rounds && layer == 0) item["exact"] = exact.couplings[layer];
        couplings.push_back(std::move(item));
      }
      write_atomically(folder_ / (file + ".json"),
                       json_text({{"shape", {batch, graph.channels, graph.height, graph.width}},
                                  {"images", images},
                                  {"lengths", answer.lengths},
                                  {"poses", answer.poses},
                                  {"couplings", couplings}}));
    }
    fs::remove(folder_ / "network.safetensors");
  }

  void expect_same_answers() {
    const std::string command =
        "node " REMCAPS_WEB_FOLDER "/test/onnx.mjs " + std::string(folder_ / ".");
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  TemporaryFolder folder_;
};

struct Case {
  const char* network;
  ModelContext context;
  const char* options;
};

TEST(OnnxFile, SaysHowAPictureBecomesItsInputAndWhatTheClassesAre) {
  const TemporaryFolder folder;
  const auto context = testing::images(1, 28, 28, 2);
  const auto model = testing::make("eff-capsnet", context, "{}");
  WeightsInfo info;
  info.context = context;
  info.recipe.name = "test/network";
  info.recipe.model = "eff-capsnet";
  info.recipe.dataset.augment.resize = 32;
  info.recipe.dataset.augment.crop = 28;
  info.class_names = {"T-shirt\nor top", "boot"};
  testing::write_exported(folder / "network.safetensors", *model, info);
  write_onnx(SafetensorsFile(folder / "network.safetensors"), folder / "network.onnx", {11});
  // Keys and values of the metadata stand in the file as they are.
  const std::string bytes = read_file(folder / "network.onnx");
  for (const std::string text : {R"(["T-shirt\nor top","boot"])", "resize", "32", "mean", "std",
                                 "lengths", "couplings_class"})
    EXPECT_NE(bytes.find(text), std::string::npos) << text;
}

TEST_F(OnnxTest, OnnxRuntimeAgreesOnAllSevenArchitectures) {
  int number = 0;
  for (const Case& it : std::vector<Case>{
           {"dr-capsnet", testing::images(1, 28, 28), "{conv_channels: 16, primary_types: 4}"},
           {"dr-capsnet", testing::images(3, 21, 26, 4),
            "{convs: 2, conv_kernel: 5, conv_channels: 8, primary_types: 3, padding: same, "
            "routing: {iterations: 1, bias: last}}"},
           {"gamma-capsnet", testing::images(1, 28, 28),
            "{conv_channels: 16, primary_types: 4, hidden: [5]}"},
           {"deepcaps", testing::images(1, 28, 28), "{conv_channels: 8, types: 3, class_dim: 6}"},
           {"deepcaps", testing::images(3, 19, 33, 3),
            "{variant: original, conv_channels: 8, types: 3, class_dim: 6}"},
           {"eff-capsnet", testing::images(2, 48, 48, 5), "{}"},
           {"eff-capsnet", testing::images(1, 28, 28),
            "{routing: {agreement: self, prior: exact}}"},
           {"eff-conv-capsnet", testing::images(3, 48, 44, 3),
            "{conv_channels: [8, 8, 8, 16], primary_dim: 4, conv_caps_types: 3, conv_caps_dim: 5, "
            "class_dim: 6}"},
           {"eff-conv-capsnet", testing::images(3, 48, 44, 3),
            "{conv_channels: [8, 8, 8, 16], primary_dim: 4, conv_caps_types: 3, conv_caps_dim: 5, "
            "class_dim: 6, share: none, routing: {bias: every}}"},
           {"multilayer-dr-capsnet", testing::images(3, 32, 32), "{}"},
           {"resnet18-capsnet", testing::images(3, 64, 64, 7), "{}"}}) {
    torch::manual_seed(7);
    const auto model = testing::make(it.network, it.context, it.options);
    testing::randomise(*model);
    WeightsInfo info;
    info.context = it.context;
    info.recipe.name = "test/network";
    info.recipe.model = it.network;
    for (int64_t j = 0; j < it.context.classes; ++j) info.class_names.push_back(std::to_string(j));
    testing::write_exported(folder_ / "network.safetensors", *model, info);
    write_case(std::to_string(number++) + "-" + it.network,
               testing::floats_of(testing::random_images(*model, 2)));
  }
  expect_same_answers();
}

TEST_F(OnnxTest, OnnxRuntimeAgreesOnTrainedNetworksAndRealImages) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  for (const char* name : {"dr-capsnet", "dr-capsnet-rem", "dr-capsnet-rem-tolerance-1",
                           "gamma-capsnet-rem", "eff-capsnet", "eff-capsnet-rem", "deepcaps-rem"}) {
    LoadedRun run = load_run(
        fs::path(REMCAPS_MODELS_FOLDER) / "fashion-mnist" / (std::string(name) + ".safetensors"),
        torch::kCPU);
    testing::write_exported(folder_ / "network.safetensors", *run.model,
                            {run.recipe, run.context, run.class_names, run.epoch});
    static const DataSplits data = run.load_data("");
    const Tensor bytes = data.split("test").images.slice(0, 0, 4).contiguous();
    write_case(name, testing::floats_of(prepare_images(bytes, run.recipe.dataset.augment)));
  }
  expect_same_answers();
}

}  // namespace
}  // namespace remcaps
