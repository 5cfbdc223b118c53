// The page in which one draws: its WebAssembly module answers as the libtorch path does. Needs
// Node.js and the packages of web/ (`make test-web`); without them this is skipped.
#include "remcaps/report/page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/ops/quantize.h"
#include "tests/runtime/exported.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json draw_data(const std::string& page) {
  const std::string begin = R"(id="report-data">)";
  const size_t from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

// Lengths, and levels of the couplings to the predicted class, with quantized couplings.
json answers_of(const LoadedRun& run, const std::vector<int64_t>& places) {
  const torch::NoGradGuard no_grad;
  const Dataset images = run.load_data("").test.select(torch::tensor(places, torch::kLong));
  ForwardOptions options;
  options.trace = true;
  options.quantizers = run.recipe.quantize.quantizers(run.model->routing_layers().size());
  const Forward forward = run.model->forward(
      run.source(images, "test").evaluation_batch(0, images.size()).images, options);
  const torch::Tensor column =
      couplings_to(forward.routings.back().coupling, forward.activations.argmax(1));
  const torch::Tensor levels =
      level_indices(column, *options.quantizers.back()).to(torch::kLong).contiguous();
  json answers = {{"lengths", json::array()}, {"levels", json::array()}};
  for (int64_t i = 0; i < images.size(); ++i) {
    const torch::Tensor row = levels[i];
    answers["lengths"].push_back(testing::floats_of(forward.activations[i]));
    answers["levels"].push_back(
        std::vector<int64_t>(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel()));
  }
  return answers;
}

TEST(DrawPage, TheModuleAnswersAsTheProgramDoes) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  const testing::TemporaryFolder folder;
  DrawPageOptions options;
  for (const std::string name : {"dr-capsnet-rem-tolerance-1", "eff-capsnet-rem"}) {
    LoadedRun run = load_run(
        fs::path(REMCAPS_SOURCE_MODELS) / "fashion-mnist" / (name + ".safetensors"), torch::kCPU);
    run.recipe.dataset.limit_test = 100;
    options.runs.push_back(folder / (name + ".safetensors"));
    testing::write_exported(options.runs.back(), *run.model,
                            {run.recipe, run.context, run.class_names, run.epoch});
  }
  const fs::path file = folder / "draw.html";
  const DrawPageSummary summary = write_draw_page(options, file);
  EXPECT_EQ(summary.note, "");
  EXPECT_LT(summary.bytes, 4'000'000u);
  const json data = draw_data(read_file(file));
  const auto places = data["images"]["indices"].get<std::vector<int64_t>>();
  EXPECT_EQ(places.size(), 100u);

  json networks = json::array();
  for (const std::string& path : options.runs)
    networks.push_back(answers_of(load_run(path, torch::kCPU), places));
  write_atomically(folder / "answers.json", json_text({{"networks", networks}}));
  if (!fs::exists(fs::path(REMCAPS_WEB_FOLDER) / "node_modules/esbuild") ||
      std::system("node --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "no Node.js with the packages of web/; `make test-web` installs them";
  const std::string command = "REMCAPS_PAGE='" + file.string() + "' REMCAPS_PAGE_ANSWERS='" +
                              (folder / "answers.json").string() +
                              "' node " REMCAPS_WEB_FOLDER "/test/run.mjs draw";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace remcaps
