#include "remcaps/report/page.h"

#include <algorithm>
#include <span>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/version.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/report/html_report_page.h"
#include "remcaps/report/html_report_run.h"
#include "remcaps/report/model_export.h"
#include "remcaps/report/page_trees.h"
#include "remcaps/report/shown_runs.h"
#include "remcaps/tensors/safetensors_bytes.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// The version of web/src/drawdata.ts that the page reads.
constexpr int kDrawVersion = 1;
// Test images fill the page up to this size, but they always get some room.
constexpr size_t kPageBytes = 4'000'000;
constexpr size_t kLeastImageBytes = 150'000, kMostImageBytes = 1'000'000;

struct DrawNetwork {
  std::string label;
  LoadedRun run;
  std::string file;  ///< the exported network, whole
  nlohmann::json layers;
  PageTrees trees;
};

// The routing layers with their grids, from a pass over an empty image.
nlohmann::json layers_for_page(const LoadedRun& run) {
  const torch::NoGradGuard no_grad;
  const ImageShape input = run.model->input();
  const Quantizers quantizers = run.recipe.quantize.quantizers(run.model->routing_layers().size());
  ForwardOptions options;
  options.trace = true;
  const Forward forward =
      run.model->forward(torch::zeros({1, input.channels, input.height, input.width}), options);
  return layers_of(forward, run.recipe.quantize, quantizers);
}

std::vector<DrawNetwork> load_networks(const DrawPageOptions& options) {
  std::vector<DrawNetwork> networks;
  std::vector<RunName> names;
  for (const std::string& argument : options.runs) {
    const RunArgument which = parse_run_argument(argument);
    DrawNetwork network;
    network.run = load_run(which.path, torch::kCPU, which.checkpoint);
    LoadedRun& run = network.run;
    network.file = network_for_runtime(run, "run in a page");
    network.layers = layers_for_page(run);
    names.push_back({argument, run.recipe.name, run.recipe.train.seed, run.epoch});
    networks.push_back(std::move(network));
  }
  const LoadedRun& first = networks.front().run;
  for (size_t n = 0; n < networks.size(); ++n) {
    const LoadedRun& run = networks[n].run;
    check(run.recipe.dataset.name == first.recipe.dataset.name &&
              run.class_names == first.class_names,
          "{} is for {} and {} for {}; two networks of a page are for the same data and classes",
          options.runs.front(), first.recipe.dataset.name, options.runs[n],
          run.recipe.dataset.name);
    networks[n].label = run_labels(names)[n];
  }
  return networks;
}

Dataset test_images(const DrawPageOptions& options, const LoadedRun& run) {
  const DataSplits data = run.load_data(options.data);
  const Dataset test = data.split("test");
  const int64_t channels = test.images.size(1);
  check(channels == 1 || channels == 3, "its images have {} channels; a page shows 1 or 3",
        channels);
  return test;
}

void add_trees(DrawNetwork& network, const Dataset& test) {
  const runtime::Network runtime(
      SafetensorsBytes(std::as_bytes(std::span(network.file)), network.label));
  Progress bar(network.label, test.size());
  network.trees = find_trees(runtime, test.images, [&](int64_t done) { bar.update(done); });
}

std::string big_endian(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

// The schema's Trees.
nlohmann::json dictionary_of(const PageTrees& trees, PageBlobs& blobs) {
  std::string hashes;
  std::vector<size_t> counts;
  std::vector<int64_t> classes;
  for (const TreeOfImages& tree : trees.trees) {
    hashes += big_endian(tree.hash.high) + big_endian(tree.hash.low);
    counts.push_back(tree.images.size());
    classes.push_back(tree.class_index);
  }
  const auto count = static_cast<int64_t>(counts.size());
  return {{"hashes", blobs.add(encode_bytes(hashes), "uint8", {count, 16})},
          {"counts", counts},
          {"classes", classes}};
}

template <typename Value>
std::vector<Value> chosen(const std::vector<Value>& from, const std::vector<int64_t>& places) {
  std::vector<Value> values;
  for (const int64_t place : places) values.push_back(from[static_cast<size_t>(place)]);
  return values;
}

// The first images of `wanted` whose encoded pixels have room; ascending. Adds them to `blobs`.
nlohmann::json add_images(const Dataset& test, std::vector<int64_t>& wanted, size_t room,
                          PageBlobs& blobs) {
  std::vector<int64_t> places;
  torch::Tensor pixels;
  std::string encoded;
  do {
    places = wanted;
    std::sort(places.begin(), places.end());
    pixels = test.images.index_select(0, torch::tensor(places, torch::kLong)).contiguous();
    encoded = encode_bytes(bytes_of(pixels));
    // Images compress unequally: a little less than the proportion.
    wanted.resize(encoded.size() <= room ? wanted.size()
                                         : wanted.size() * 9 / 10 * room / encoded.size());
  } while (encoded.size() > room && !wanted.empty());
  wanted = places;
  return blobs.add(std::move(encoded), "uint8", pixels.sizes().vec());
}

}  // namespace

DrawPageSummary write_draw_page(const DrawPageOptions& options, const fs::path& file) {
  check(!options.runs.empty() && options.runs.size() <= 2, "a page has one network or two");
  prepare_output(file);
  std::vector<DrawNetwork> networks = load_networks(options);
  const LoadedRun& first = networks.front().run;

  DrawPageSummary summary;
  std::optional<Dataset> test;
  try {
    test = test_images(options, first);
  } catch (const Error& error) {
    summary.note = fmt::format("no dictionaries and no test images: {}", error.what());
  }

  PageBlobs blobs;
  const nlohmann::json module = blobs.add(encode_bytes(runtime_module()), "uint8",
                                          {static_cast<int64_t>(runtime_module().size())});
  auto list = nlohmann::json::array();
  for (DrawNetwork& network : networks) {
    if (test) add_trees(network, *test);
    summary.networks.push_back(network.label);
    list.push_back({{"name", network.label},
                    {"file", blobs.add(encode_bytes(network.file), "uint8",
                                       {static_cast<int64_t>(network.file.size())})},
                    {"layers", network.layers},
                    {"trees", network.trees.trees.empty() ? nlohmann::json(nullptr)
                                                          : dictionary_of(network.trees, blobs)}});
  }

  nlohmann::json images = nullptr;
  if (test) {
    std::vector<PageTrees> trees;
    for (const DrawNetwork& network : networks) trees.push_back(network.trees);
    std::vector<int64_t> places = wanted_images(trees, test->labels);
    size_t used = draw_page_template().size();
    for (const std::string& text : blobs.texts()) used += text.size();
    const size_t left = kPageBytes - std::min(kPageBytes, used);
    const nlohmann::json pixels =
        add_images(*test, places, std::clamp(left, kLeastImageBytes, kMostImageBytes), blobs);
    const torch::Tensor labels = test->labels.contiguous();
    images = {{"samples", test->size()},
              {"indices", places},
              {"labels", chosen(std::vector<int64_t>(labels.data_ptr<int64_t>(),
                                                     labels.data_ptr<int64_t>() + labels.numel()),
                                places)},
              {"pixels", pixels}};
    for (size_t n = 0; n < networks.size(); ++n)
      if (!trees[n].trees.empty()) list[n]["trees"]["of_images"] = chosen(trees[n].tree_of, places);
  }

  const std::string page =
      html_page(draw_page_template(),
                {{"version", kDrawVersion},
                 {"generator", fmt::format("remcaps {}", kVersion)},
                 {"dataset", first.recipe.dataset.name},
                 {"object_side", find_dataset(first.recipe.dataset.name).object_side},
                 {"module", module},
                 {"networks", std::move(list)},
                 {"images", std::move(images)}},
                blobs);
  write_atomically(file, page);
  summary.bytes = page.size();
  return summary;
}

}  // namespace remcaps
