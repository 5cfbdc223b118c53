// Every network learns from real images, through the real program.
#include <sstream>

#include "remcaps/runs/metrics.h"
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

struct Network {
  const char* recipe;
  std::vector<std::string> settings;
};

void PrintTo(const Network& network, std::ostream* out) {
  *out << network.recipe;
}

// A name for GoogleTest: letters and digits only.
std::string test_name(const ::testing::TestParamInfo<Network>& info) {
  std::string name = info.param.recipe;
  name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }),
             name.end());
  return name;
}

class NetworkTest : public CliTest, public ::testing::WithParamInterface<Network> {
 protected:
  std::vector<double> train_losses() const {
    const std::vector<std::string> columns = MetricsFile::columns();
    const auto column = std::find(columns.begin(), columns.end(), "train_loss") - columns.begin();
    std::istringstream rows(read_file(folder_ / "out" / "seed-42" / "metrics.csv"));
    std::vector<double> losses;
    std::string row, cell;
    std::getline(rows, row);
    while (std::getline(rows, row)) {
      std::istringstream cells(row);
      for (int64_t i = 0; i <= column; ++i) std::getline(cells, cell, ',');
      losses.push_back(std::stod(cell));
    }
    return losses;
  }
};

TEST_P(NetworkTest, LossFallsWithinAnEpochOfRealImages) {
  std::vector<std::string> arguments = {"train", GetParam().recipe, "--out", "out", "--device",
                                        "cpu",   "--epochs",        "2"};
  // Eight steps an epoch: DeepCaps' loss often rises over Adam's first steps before it falls, and
  // with fewer that rise would lie in the second epoch.
  std::vector<std::string> settings = {"dataset.limit_train=64",  "dataset.limit_test=8",
                                       "dataset.validation=8",    "train.batch=8",
                                       "dataset.augment.shift=0", "dataset.augment.flip=false",
                                       "metrics.every=0"};
  settings.insert(settings.end(), GetParam().settings.begin(), GetParam().settings.end());
  for (const auto& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  const ProgramResult result = remcaps(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<double> losses = train_losses();
  ASSERT_EQ(losses.size(), 2);
  EXPECT_LT(losses[1], losses[0]);
}

INSTANTIATE_TEST_SUITE_P(FashionMnist, NetworkTest,
                         ::testing::Values(Network{"fashion-mnist/dr-capsnet", {}},
                                           Network{"fashion-mnist/dr-capsnet-decoder", {}},
                                           Network{"fashion-mnist/gamma-capsnet", {}},
                                           Network{"fashion-mnist/deepcaps", {}},
                                           Network{"fashion-mnist/multilayer-dr-capsnet", {}},
                                           Network{"imagenette/eff-conv-capsnet",
                                                   {"dataset.name=fashion-mnist",
                                                    "dataset.limit_train=32",
                                                    "dataset.augment.resize=64"}}),
                         test_name);

}  // namespace
}  // namespace remcaps::testing
