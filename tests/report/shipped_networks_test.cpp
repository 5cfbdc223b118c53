// The networks in models/: their cards, and the Fashion-MNIST ones on the real test set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "remcaps/base/files.h"
#include "remcaps/data/dataset.h"
#include "remcaps/report/model_export.h"
#include "remcaps/runs/zoo.h"
#include "tests/scoped_variable.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> fashion_mnist_networks() {
  std::vector<std::string> names;
  std::istringstream list(REMCAPS_FASHION_MNIST_NETWORKS);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

// Expects a number of the card and the measured one to differ by at most `most`.
void expect_near(const json& card, const json& measured, const char* key, double most) {
  EXPECT_NEAR(measured.at(key).get<double>(), card.at(key).get<double>(), most) << key;
}

class ShippedNetworks : public ::testing::Test {
 protected:
  const testing::ScopedVariable models_ = {"REMCAPS_MODELS", REMCAPS_SOURCE_MODELS};
};

TEST_F(ShippedNetworks, AllHaveTheCardThatTheirFileGives) {
  int64_t found = 0, bytes = 0;
  for (const std::string& name : zoo_names()) {
    const fs::path file = find_in_zoo("zoo:" + name);
    EXPECT_EQ(read_file(fs::path(file).replace_extension(".md")), card_text(file)) << name;
    EXPECT_EQ(load_run(file, torch::kCPU).recipe.name, read_card(file).at("recipe")) << name;
    bytes += static_cast<int64_t>(fs::file_size(file));
    ++found;
  }
  EXPECT_LE(bytes, 65'000'000) << "in every clone and every installation";
  if (found == 0) GTEST_SKIP() << "no trained network is in " << REMCAPS_SOURCE_MODELS;
}

TEST_F(ShippedNetworks, SomeAreOfFashionMnist) {
  if (fashion_mnist_networks().empty())
    GTEST_SKIP() << "no trained network is in " << REMCAPS_SOURCE_MODELS << "/fashion-mnist";
}

class ShippedNetworkTest : public ShippedNetworks,
                           public ::testing::WithParamInterface<std::string> {};

// Everything that is counted in the file is the same on every machine and must be equal.
//
// What the network computes can differ in its last bits: the order of a float32 sum depends on
// kernels, SIMD width, BLAS and libtorch (not on threads). This matters only if two numbers are
// nearly equal: the lengths of the two longest class capsules (then the prediction may change), or
// a coupling and an edge of the quantizer (then the image's key may change). The couplings of a
// DR-CapsNet differed by at most 2e-7 between the fused kernels with AVX-512 and the plain ones
// with AVX-512 and with AVX2: no prediction of 2,000 and no key at K = 21 changed, 1 in 200 keys at
// K = 81, where edges are four times as dense. The bounds leave room for networks with larger
// logits, whose rounding is larger. A wrong weight, normalisation or edge moves the numbers by far
// more.
TEST_P(ShippedNetworkTest, DoesOnTheTestSetWhatItsCardSays) {
  const LoadedRun run = load_run("zoo:fashion-mnist/" + GetParam(), torch::kCPU);
  const DataSplits data = run.load_data("");
  const json card = read_card(run.weights);
  const json measured = measure_for_card(run, run.source(data, "test"));

  ASSERT_EQ(measured.at("samples"), 10'000) << "the real test set, whole";
  for (const char* key : {"model", "dataset", "recipe", "seed", "epoch", "samples", "levels",
                          "parameters", "parameters_nonzero", "sparsity"})
    EXPECT_EQ(measured.at(key), card.at(key)) << key;

  const double images = measured.at("samples");
  expect_near(card, measured, "accuracy", 2 / images);
  expect_near(card, measured, "accuracy_quantized", 3 / images);
  expect_near(card, measured, "loss", 1e-5);
  expect_near(card, measured, "entropy", 0.02);
  const auto keys = measured.at("keys_per_class").get<std::vector<double>>();
  const auto keys_of_card = card.at("keys_per_class").get<std::vector<double>>();
  ASSERT_EQ(keys.size(), keys_of_card.size());
  for (size_t k = 0; k < keys.size(); ++k)
    EXPECT_NEAR(keys[k], keys_of_card[k], 3 + 0.02 * keys_of_card[k]) << "class " << k;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ShippedNetworkTest);
INSTANTIATE_TEST_SUITE_P(FashionMnist, ShippedNetworkTest,
                         ::testing::ValuesIn(fashion_mnist_networks()), test_name);

}  // namespace
}  // namespace remcaps
