#include "remcaps/c/remcaps.h"

#include <algorithm>
#include <exception>
#include <string>

#include "remcaps/base/error.h"
#include "remcaps/parse_tree/keys.h"
#include "remcaps/runtime/tree_dictionary.h"

struct remcaps_network {
  remcaps::runtime::Network network;
};

struct remcaps_dictionary {
  remcaps::runtime::TreeDictionary dictionary;
  size_t key_length;
};

namespace {

using remcaps::check;
using remcaps::runtime::Answer;
using remcaps::runtime::Network;
using remcaps::runtime::RoutingLayer;
using remcaps::runtime::TreeDictionary;
using remcaps::runtime::TreePlace;

thread_local std::string last_error;

int64_t key_length_of(const Network& network, size_t layer) {
  const RoutingLayer& routed = network.routing_layers()[layer];
  const bool is_last = layer + 1 == network.routing_layers().size();
  if (routed.levels == 0) return 0;
  return remcaps::key_length(is_last ? routed.children : routed.couplings(), routed.levels);
}

// Runs `work`; an exception becomes the text of remcaps_error().
template <typename Work>
int guarded(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "unknown error";
  }
  return -1;
}

const Network& network_of(const remcaps_network* network) {
  check(network != nullptr, "the network is NULL");
  return network->network;
}

void check_given(const void* pointer, const char* name) {
  check(pointer != nullptr, "{} is NULL", name);
}

const RoutingLayer& layer_of(const Network& network, int64_t layer) {
  const auto& layers = network.routing_layers();
  check(layer >= 0 && layer < static_cast<int64_t>(layers.size()),
        "routing layer {}; the network has {}", layer, layers.size());
  return layers[static_cast<size_t>(layer)];
}

Answer traced(const Network& network, const float* image, bool quantized) {
  check_given(image, "the image");
  return network.run({image, static_cast<size_t>(network.input_floats())},
                     {.couplings = true, .quantize = quantized});
}

}  // namespace

remcaps_network* remcaps_open(const char* path) {
  remcaps_network* opened = nullptr;
  guarded([&] {
    check_given(path, "the path");
    opened = new remcaps_network{Network(path)};
  });
  return opened;
}

void remcaps_close(remcaps_network* network) {
  delete network;
}

const char* remcaps_error(void) {
  return last_error.c_str();
}

int remcaps_set_threads(remcaps_network* network, int threads) {
  return guarded([&] {
    network_of(network);
    network->network.set_threads(threads);
  });
}

int remcaps_describe(const remcaps_network* network, remcaps_description* description) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(description, "the description");
    *description = {of.graph().network.c_str(),
                    of.graph().channels,
                    of.graph().height,
                    of.graph().width,
                    of.classes(),
                    of.pose_dim(),
                    static_cast<int64_t>(of.routing_layers().size())};
  });
}

int remcaps_describe_layer(const remcaps_network* network, int64_t layer, remcaps_layer* of_layer) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(of_layer, "the layer");
    const RoutingLayer& routed = layer_of(of, layer);
    *of_layer = {routed.name.c_str(), routed.positions,
                 routed.children,     routed.parents,
                 routed.levels,       key_length_of(of, static_cast<size_t>(layer))};
  });
}

const char* remcaps_class_name(const remcaps_network* network, int64_t class_index) {
  const char* name = nullptr;
  guarded([&] {
    const Network& of = network_of(network);
    check(class_index >= 0 && class_index < of.classes(), "class {}; the network has {}",
          class_index, of.classes());
    name = of.graph().classes[static_cast<size_t>(class_index)].c_str();
  });
  return name;
}

int remcaps_prepare(const remcaps_network* network, const uint8_t* pixels, int64_t height,
                    int64_t width, int64_t channels, float* image) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(image, "the image");
    const std::vector<float> prepared = of.prepare({pixels, height, width, channels});
    std::copy(prepared.begin(), prepared.end(), image);
  });
}

int remcaps_classify_bytes(const remcaps_network* network, const uint8_t* pixels, int64_t height,
                           int64_t width, int64_t channels, float* lengths) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(lengths, "the array of lengths");
    const Answer answer = of.run(of.prepare({pixels, height, width, channels}));
    std::copy(answer.lengths.begin(), answer.lengths.end(), lengths);
  });
}

int remcaps_classify_floats(const remcaps_network* network, const float* input, int64_t images,
                            float* lengths, float* poses) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(input, "the input");
    check_given(lengths, "the array of lengths");
    check(images >= 0, "{} images", images);
    const Answer answer = of.run({input, static_cast<size_t>(images * of.input_floats())});
    std::copy(answer.lengths.begin(), answer.lengths.end(), lengths);
    if (poses != nullptr) std::copy(answer.poses.begin(), answer.poses.end(), poses);
  });
}

int remcaps_couplings(const remcaps_network* network, const float* image, int64_t layer,
                      int quantized, float* couplings) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(couplings, "the array of couplings");
    layer_of(of, layer);
    const Answer answer = traced(of, image, quantized != 0);
    const auto& values = answer.couplings[static_cast<size_t>(layer)];
    std::copy(values.begin(), values.end(), couplings);
  });
}

int remcaps_levels(const remcaps_network* network, const float* image, int64_t layer,
                   uint8_t* levels) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(levels, "the array of levels");
    layer_of(of, layer);
    const auto indices =
        of.level_indices(traced(of, image, /*quantized=*/true), static_cast<size_t>(layer));
    std::copy(indices.begin(), indices.end(), levels);
  });
}

int remcaps_tree_key(const remcaps_network* network, const float* image, int64_t layer,
                     uint8_t* key, int64_t* class_index) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(key, "the key");
    layer_of(of, layer);
    const Answer answer = traced(of, image, /*quantized=*/true);
    const std::string bytes = of.tree_key(answer, 0, static_cast<size_t>(layer));
    std::copy(bytes.begin(), bytes.end(), key);
    if (class_index != nullptr) *class_index = answer.predicted(0);
  });
}

int remcaps_saliency(const remcaps_network* network, const float* image, int64_t class_index,
                     float* map) {
  return guarded([&] {
    const Network& of = network_of(network);
    check_given(map, "the map");
    const Answer answer = traced(of, image, /*quantized=*/false);
    const std::vector<float> values =
        of.saliency(answer, 0, class_index == -1 ? answer.predicted(0) : class_index);
    std::copy(values.begin(), values.end(), map);
  });
}

remcaps_dictionary* remcaps_open_dictionary(const char* path, const remcaps_network* network) {
  remcaps_dictionary* opened = nullptr;
  guarded([&] {
    check_given(path, "the path");
    const Network& of = network_of(network);
    TreeDictionary dictionary(path, of);
    const auto length = static_cast<size_t>(key_length_of(of, of.routing_layers().size() - 1));
    opened = new remcaps_dictionary{std::move(dictionary), length};
  });
  return opened;
}

void remcaps_close_dictionary(remcaps_dictionary* dictionary) {
  delete dictionary;
}

int remcaps_find_tree(const remcaps_dictionary* dictionary, const uint8_t* key, int64_t class_index,
                      remcaps_tree_place* place) {
  return guarded([&] {
    check_given(dictionary, "the dictionary");
    check_given(key, "the key");
    check_given(place, "the place");
    const TreePlace found =
        dictionary->dictionary.find(class_index, {key, key + dictionary->key_length});
    *place = {found.images, found.class_images, found.rank, found.class_trees};
  });
}
