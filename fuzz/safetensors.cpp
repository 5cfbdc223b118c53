// Safetensors files and compressed weights. Any other exception than Error is a finding.
#include <numeric>

#include "fuzz/input_file.h"
#include "remcaps/base/error.h"
#include "remcaps/tensors/compressed.h"
#include "remcaps/tensors/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const remcaps::fuzz::InputFile input(bytes, size);
  try {
    const remcaps::SafetensorsFile file(input.path());
    volatile unsigned sum = 0;
    for (const auto& [name, tensor] : file.tensors())  // every byte can be read
      for (const std::byte byte : tensor.bytes) sum = sum + std::to_integer<unsigned>(byte);
    const auto decompressed = remcaps::decompress(file.tensors(), file.metadata(), "input");
    for (const auto& [name, tensor] : decompressed.floats) {
      const int64_t places = std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1},
                                             std::multiplies<>());
      if (places != static_cast<int64_t>(tensor.values.size())) std::abort();
    }
  } catch (const remcaps::Error&) {
  }
  return 0;
}
