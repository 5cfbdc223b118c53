// remcaps-run: classifies pictures with an exported network, without libtorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/version.h"
#include "remcaps/data/formats/picture_file.h"
#include "remcaps/parse_tree/keys.h"
#include "remcaps/runtime/tree_dictionary.h"
#include "remcaps/tensors/cut_file.h"

namespace remcaps {
namespace {

using nlohmann::json;
using runtime::Answer;
using runtime::Network;
using runtime::TreeDictionary;
using runtime::TreePlace;

struct RunCommand {
  std::string network, dictionary;
  std::vector<std::string> pictures;
  int64_t top = 1;
  int threads = 0;
  int64_t bench = 0;
  bool invert = false, json = false, saliency = false;
};

// The classes of an answer, the longest capsule first.
std::vector<int64_t> ranked(const Answer& answer) {
  std::vector<int64_t> classes(answer.lengths.size());
  std::iota(classes.begin(), classes.end(), 0);
  std::stable_sort(classes.begin(), classes.end(), [&](int64_t a, int64_t b) {
    return answer.lengths[static_cast<size_t>(a)] > answer.lengths[static_cast<size_t>(b)];
  });
  return classes;
}

// The parse tree with quantized couplings: one key per routing layer that has levels.
json tree_json(const Network& network, const Answer& answer) {
  json keys = json::object();
  for (size_t layer = 0; layer < network.routing_layers().size(); ++layer) {
    const runtime::RoutingLayer& routed = network.routing_layers()[layer];
    if (routed.levels == 0) continue;
    const KeyHash hash = hash_key(network.tree_key(answer, 0, layer));
    keys[routed.name] = fmt::format("{:016x}{:016x}", hash.high, hash.low);
  }
  return {{"class", network.graph().classes[static_cast<size_t>(answer.predicted(0))]},
          {"keys", keys}};
}

TreePlace place_in(const TreeDictionary& dictionary, const Network& network, const Answer& answer) {
  return dictionary.find(answer.predicted(0),
                         network.tree_key(answer, 0, network.routing_layers().size() - 1));
}

// The map as a list of rows.
json saliency_json(const Network& network, const std::vector<float>& image) {
  const Answer answer = network.run(image, {.couplings = true});
  const std::vector<float> map = network.saliency(answer, 0, answer.predicted(0));
  json rows = json::array();
  for (auto row = map.begin(); row != map.end(); row += network.graph().width)
    rows.push_back(std::vector<float>(row, row + network.graph().width));
  return rows;
}

// Images per second of batches of random images.
void bench(const Network& network, int64_t batch) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 5;
  constexpr double kSeconds = 0.5;  // of a round
  std::vector<float> images(static_cast<size_t>(batch * network.input_floats()));
  std::mt19937 random(1);
  for (float& x : images) x = std::uniform_real_distribution<float>(0, 1)(random);
  network.run(images);
  std::vector<double> speeds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    double seconds = 0;
    int64_t runs = 0;
    for (; seconds < kSeconds; ++runs) {
      network.run(images);
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    speeds.push_back(static_cast<double>(runs * batch) / seconds);
  }
  std::sort(speeds.begin(), speeds.end());
  fmt::print("{}, batch {}: {:.0f} images/s ({:.3f} ms an image; {:.0f} to {:.0f} in {} rounds)\n",
             network.graph().network, batch, speeds[kRounds / 2], 1e3 / speeds[kRounds / 2],
             speeds.front(), speeds.back(), kRounds);
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) fail("stdout: cannot write: {}", std::strerror(errno));
}

// What is wrong with the usual mistakes.
void check_network_name(const std::string& name) {
  check(!name.starts_with("zoo:"),
        "{}: names of the zoo are for `remcaps`; give the file, models/NAME.safetensors", name);
  check(
      !name.ends_with(".onnx"),
      "{}: an ONNX file is for ONNX Runtime; give NAME.safetensors, as `remcaps export` writes it",
      name);
}

// Prints the answer for a picture, or adds it to `all`.
void answer_for(const std::string& path, const RunCommand& options, const Network& network,
                const std::optional<TreeDictionary>& dictionary, json& all) {
  const std::vector<std::string>& names = network.graph().classes;
  const DecodedPicture picture = read_picture(path);
  const std::vector<float> image = network.prepare(
      {picture.pixels.data(), picture.header.height, picture.header.width, picture.header.channels},
      options.invert);
  const Answer answer = network.run(image);
  std::vector<int64_t> classes = ranked(answer);
  classes.resize(std::min(classes.size(), static_cast<size_t>(options.top)));
  json list = json::array();
  std::string line = path;
  for (const int64_t j : classes) {
    const auto place = static_cast<size_t>(j);
    list.push_back({{"class", names[place]}, {"activation", answer.lengths[place]}});
    line += fmt::format("  {} {:.3f}", names[place], answer.lengths[place]);
  }
  if (!options.json && !dictionary) return fmt::print("{}\n", printable(line));
  const Answer tree = network.run(image, {.couplings = true, .quantize = true});
  TreePlace place;
  if (dictionary) place = place_in(*dictionary, network, tree);
  if (!options.json)
    return fmt::print("{}  tree of {} of {} images\n", printable(line), place.images,
                      place.class_images);
  all.push_back({{"image", path},
                 {"class", list[0]["class"]},
                 {"activation", list[0]["activation"]},
                 {"top", list},
                 {"lengths", answer.lengths},
                 {"tree", tree_json(network, tree)}});
  if (dictionary)
    all.back()["tree"]["dictionary"] = {{"images", place.images},
                                        {"class_images", place.class_images},
                                        {"rank", place.rank},
                                        {"class_trees", place.class_trees}};
  if (options.saliency) all.back()["saliency"] = saliency_json(network, image);
}

void run(const RunCommand& options) {
  check_network_name(options.network);
  Network network(options.network);
  if (options.threads > 0) network.set_threads(options.threads);
  if (options.bench > 0) return bench(network, options.bench);
  std::optional<TreeDictionary> dictionary;
  if (!options.dictionary.empty()) dictionary.emplace(options.dictionary, network);
  json all = json::array(), unreadable = json::array();
  for (const std::string& path : options.pictures) {
    try {
      answer_for(path, options, network, dictionary, all);
    } catch (const Error& error) {
      if (options.pictures.size() == 1) throw;
      flush_stdout();
      say("remcaps-run: {}", error.what());  // the others still get their answer
      unreadable.push_back({{"image", path}, {"error", error.what()}});
    }
  }
  if (options.json)
    fmt::print("{}\n", json_text({{"model", network.graph().network},
                                  {"weights", options.network},
                                  {"predictions", all},
                                  {"unreadable", unreadable}}));
  flush_stdout();
  check(unreadable.empty(), "{} of {} pictures have no answer", unreadable.size(),
        options.pictures.size());
}

int main_of(int argc, char** argv) {
  CLI::App app("Classes of pictures by a network that `remcaps export` has written");
  app.set_version_flag("--version", kVersion);
  RunCommand options;
  app.add_option("network", options.network, "File of the network, NAME.safetensors");
  app.add_option("pictures", options.pictures, "PNG or JPEG pictures of any size");
  app.add_option("--top", options.top, "How many classes to list")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads to use (default: one per core)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--bench", options.bench, "Measure images per second, in batches of so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  app.add_flag("--invert", options.invert, "Use the negative of each picture");
  app.add_flag("--json", options.json, "One JSON object on stdout, with the keys of parse trees");
  app.add_option("--dictionary", options.dictionary,
                 "Say how many images share the parse tree: a file of `remcaps entropy --save`");
  app.add_flag("--saliency", options.saliency,
               "With --json: where in the picture the answer comes from, as rows of pixels");
  app.footer(
      "Example:\n  remcaps export zoo:mnist/dr-capsnet-rem --out small.safetensors\n"
      "  remcaps-run small.safetensors digit.png --top 3");
  try {
    app.parse(argc, argv);
    // Not checked by CLI11, which would complain of them before it names a flag that is unknown.
    if (options.network.empty()) throw CLI::RequiredError("network");
    if (options.pictures.empty() && options.bench == 0) throw CLI::RequiredError("pictures");
    if (options.saliency && !options.json) throw CLI::RequiresError("--saliency", "--json");
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    // CLI11 looks for missing arguments first. A flag that is not known is the likelier mistake.
    const std::vector<std::string> unknown = app.remaining();
    if (unknown.empty())
      say("remcaps-run: {}", error.what());
    else
      say("remcaps-run: unknown argument {}; --help lists the options", unknown[0]);
    return 2;
  }
  try {
    run(options);
    flush_stdout();
    return 0;
  } catch (const std::bad_alloc&) {
    say("remcaps-run: not enough memory");
  } catch (const std::exception& error) {
    say("remcaps-run: {}", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace remcaps

int main(int argc, char** argv) {
  remcaps::exit_if_a_mapped_file_is_cut();
  return remcaps::main_of(argc, argv);
}
