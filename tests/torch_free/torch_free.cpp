// Reads a packed network and counts keys, without libtorch: torch_free FILE.
#include <fmt/format.h>

#include "remcaps/base/error.h"
#include "remcaps/parse_tree/tree_report.h"
#include "remcaps/tensors/packed.h"

using namespace remcaps;

namespace {

void read_network(const char* path) {
  const SafetensorsFile file(path);
  const UnpackedTensors weights = unpack(file.tensors(), file.metadata(), path);
  size_t values = 0;
  for (const auto& [name, tensor] : weights.floats) values += tensor.values.size();
  check(values > 100'000, "{}: {} weights", path, values);
}

void count_keys() {
  const Quantizer quantizer = Quantizer::uniform(11);
  Dictionary dictionary(1);
  for (const float last : {0.3F, 0.31F, 0.9F}) {
    const std::vector<float> couplings = {0.1F, 0.5F, last};
    std::vector<uint8_t> key(static_cast<size_t>(key_length(3, quantizer.levels())));
    encode_key(couplings, quantizer, key);
    dictionary.add(0, {reinterpret_cast<const char*>(key.data()), key.size()});
  }
  LayerTrees trees;
  describe_dictionary(trees, dictionary, 3, quantizer.levels());
  check(trees.median_keys == 2 && trees.varying_per_class[0] == 1, "{} keys, {} varying couplings",
        trees.median_keys, trees.varying_per_class[0]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    check(argc == 2, "usage: torch_free FILE");
    read_network(argv[1]);
    count_keys();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
