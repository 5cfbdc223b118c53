// Exported networks, in the runtime without libtorch, through its C API. What opens is also run on
// a grey picture: an answer or an error, within the memory of a small network.
#include <vector>

#include "fuzz/input_file.h"
#include "remcaps/c/remcaps.h"

namespace {

constexpr int64_t kMost = 1 << 20;  // numbers that an answer may have here

bool is_small(std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent <= 0) std::abort();
    if (extent > kMost / product) return false;
    product *= extent;
  }
  return true;
}

void trace(const remcaps_network* network, const std::vector<float>& image, int64_t index) {
  remcaps_layer layer;
  if (remcaps_describe_layer(network, index, &layer) != 0) std::abort();
  if (!is_small({layer.positions, layer.children, layer.parents})) return;
  const auto couplings = static_cast<size_t>(layer.positions * layer.children * layer.parents);
  std::vector<float> values(couplings);
  remcaps_couplings(network, image.data(), index, 0, values.data());
  if (layer.levels == 0) return;
  std::vector<uint8_t> levels(couplings), key(static_cast<size_t>(layer.key_length));
  remcaps_levels(network, image.data(), index, levels.data());
  remcaps_tree_key(network, image.data(), index, key.data(), nullptr);
}

void use(const remcaps_network* network) {
  remcaps_description description;
  if (remcaps_describe(network, &description) != 0) std::abort();
  if (!is_small({description.channels, description.height, description.width}) ||
      !is_small({description.classes, description.pose_size}))
    return;
  for (int64_t i = 0; i < description.classes; ++i)
    if (remcaps_class_name(network, i) == nullptr) std::abort();
  const std::vector<uint8_t> pixels(12, 99);
  std::vector<float> image(
      static_cast<size_t>(description.channels * description.height * description.width));
  std::vector<float> lengths(static_cast<size_t>(description.classes));
  if (remcaps_prepare(network, pixels.data(), 2, 2, 3, image.data()) != 0) return;
  remcaps_classify_floats(network, image.data(), 1, lengths.data(), nullptr);
  for (int64_t i = 0; i < description.routing_layers; ++i) trace(network, image, i);
  std::vector<float> map(static_cast<size_t>(description.height * description.width));
  if (map.size() <= kMost / 256) remcaps_saliency(network, image.data(), -1, map.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const remcaps::fuzz::InputFile input(bytes, size);
  remcaps_network* network = remcaps_open(input.path().c_str());
  if (network == nullptr) {
    if (*remcaps_error() == '\0') std::abort();
    return 0;
  }
  remcaps_set_threads(network, 1);
  use(network);
  remcaps_close(network);
  return 0;
}
