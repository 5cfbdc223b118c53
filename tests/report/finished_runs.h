// Folders of finished runs, for tables and for the plans of `reproduce`.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/files.h"
#include "remcaps/report/run_results.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace remcaps {

class FinishedRuns : public ::testing::Test {
 protected:
  /// A finished run with the numbers a table reads.
  void add_run(const std::string& recipe, int64_t seed, double accuracy, double quantized,
               std::vector<double> entropies, double sparsity, int64_t left,
               std::vector<int64_t> keys = {3, 5}, int64_t epochs = 10,
               const std::string& suffix = "") {
    double mean = 0;
    for (const double entropy : entropies) mean += entropy / static_cast<double>(entropies.size());
    const nlohmann::json summary = {{"recipe", recipe},
                                    {"seed", seed},
                                    {"epochs", epochs},
                                    {"accuracy", accuracy},
                                    {"accuracy_quantized", quantized},
                                    {"entropy", mean},
                                    {"entropy_per_class", entropies},
                                    {"keys_per_class", keys},
                                    {"median_keys", 4},
                                    {"sparsity", sparsity},
                                    {"parameters_nonzero", left},
                                    {"splits",
                                     {{"familiar", {{"accuracy_quantized", 0.9}, {"entropy", 1.5}}},
                                      {"novel", {{"accuracy_quantized", 0.8}, {"entropy", 2.5}}}}}};
    const auto folder = folder_.path() / recipe / fmt::format("seed-{}{}", seed, suffix);
    make_folder(folder);
    write_atomically(folder / "summary.json", summary.dump());
  }
  FoundResults found() const { return find_results({folder_.path()}); }
  RunResults results() const { return found().results; }

  testing::TemporaryFolder folder_;
  const testing::ScopedVariable recipes_ = {"REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES};
};

}  // namespace remcaps
