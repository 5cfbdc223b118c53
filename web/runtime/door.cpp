// The runtime as a WebAssembly module: plain functions for a page (web/src/network.ts). The module
// imports nothing. An error stops the call with a trap; remcaps_error() then points to its text.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <typeinfo>

#include "remcaps/base/json.h"
#include "remcaps/parse_tree/keys.h"
#include "remcaps/runtime/network.h"
#include "remcaps/tensors/safetensors_bytes.h"

#define EXPORT(name) __attribute__((export_name(name), used))

using remcaps::runtime::Answer;
using remcaps::runtime::Network;
using remcaps::runtime::RoutingLayer;

namespace {

char error_text[1024];

// A network and its answer for the last picture.
struct Opened {
  Network network;
  Answer answer = {};
  std::string text = {};
  std::array<float, 2> evidence = {};
};

nlohmann::json describe(const Network& network) {
  const remcaps::NetworkGraph& graph = network.graph();
  auto layers = nlohmann::json::array();
  for (const RoutingLayer& layer : network.routing_layers())
    layers.push_back({{"name", layer.name},
                      {"positions", layer.positions},
                      {"children", layer.children},
                      {"parents", layer.parents},
                      {"levels", layer.levels}});
  return {{"network", graph.network},
          {"channels", graph.channels},
          {"height", graph.height},
          {"width", graph.width},
          {"classes", graph.classes},
          {"form", graph.level_form},
          {"resize", graph.picture.resize},
          {"contribution_layer", network.contribution_layer()},
          {"contributing", network.contributing_capsules()},
          {"layers", std::move(layers)}};
}

}  // namespace

// Exceptions cannot be caught here: a `throw` ends in this function. Everything that is thrown is a
// std::exception, and its first base.
extern "C" {

void* __cxa_allocate_exception(size_t size) noexcept {
  return std::malloc(size);
}

[[noreturn]] void __cxa_throw(void* thrown, std::type_info*, void (*)(void*)) {
  const char* text = static_cast<std::exception*>(thrown)->what();
  std::strncpy(error_text, text, sizeof error_text - 1);
  __builtin_trap();
}

EXPORT("error") const char* remcaps_error() {
  return error_text;
}

EXPORT("allocate") void* remcaps_allocate(size_t bytes) {
  return std::malloc(bytes);
}

EXPORT("release") void remcaps_release(void* memory) {
  std::free(memory);
}

/// A file that `remcaps export` wrote. Its bytes are not needed any more afterwards.
EXPORT("open") Opened* remcaps_open(const std::byte* bytes, size_t size) {
  return new Opened{Network(remcaps::SafetensorsBytes({bytes, size}, "the network"))};
}

/// What the network is, as JSON that ends with a zero.
EXPORT("describe") const char* remcaps_describe(Opened* opened) {
  opened->text = remcaps::json_text(describe(opened->network));
  return opened->text.c_str();
}

/// Answers for a picture, bytes [height, width, channels].
EXPORT("answer")
void remcaps_answer(Opened* opened, const uint8_t* pixels, int height, int width, int channels,
                    int invert, int quantize) {
  const Network& network = opened->network;
  opened->answer =
      network.run(network.prepare({pixels, height, width, channels}, invert != 0),
                  {.couplings = true, .quantize = quantize != 0, .contributions = true});
}

/// Lengths of the class capsules, [classes].
EXPORT("lengths") const float* remcaps_lengths(const Opened* opened) {
  return opened->answer.lengths.data();
}

/// Couplings of a routing layer, [P, I, J].
EXPORT("couplings") const float* remcaps_couplings(const Opened* opened, int layer) {
  return opened->answer.couplings.at(static_cast<size_t>(layer)).data();
}

/// Lengths of the capsules below a routing layer, [I]; null if the layer is convolutional.
EXPORT("child_lengths") const float* remcaps_child_lengths(const Opened* opened, int layer) {
  const auto& lengths = opened->answer.child_lengths.at(static_cast<size_t>(layer));
  return lengths.empty() ? nullptr : lengths.data();
}

/// What each child of the layer `contribution_layer` contributes to the predicted class, [I].
EXPORT("contributions") const float* remcaps_contributions(const Opened* opened) {
  return opened->answer.contributions.data();
}

/// The evidence for that class, and the part of the biases in it, [2].
EXPORT("evidence") const float* remcaps_evidence(Opened* opened) {
  opened->evidence = {opened->answer.evidence.at(0), opened->answer.bias_evidence.at(0)};
  return opened->evidence.data();
}

/// The hash of the parse tree's key at the last layer, 32 hexadecimal digits and a zero.
EXPORT("tree_hash") const char* remcaps_tree_hash(Opened* opened) {
  const Network& network = opened->network;
  const remcaps::KeyHash hash =
      remcaps::hash_key(network.tree_key(opened->answer, 0, network.routing_layers().size() - 1));
  opened->text = fmt::format("{:016x}{:016x}", hash.high, hash.low);
  return opened->text.c_str();
}

}  // extern "C"
