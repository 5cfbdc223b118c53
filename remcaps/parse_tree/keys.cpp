#include "remcaps/parse_tree/keys.h"

#include <cstring>

namespace remcaps {

namespace {

uint64_t mix(uint64_t value) {  // splitmix64's finaliser
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Eight bytes a round. The length is part of the seed: a key and the same key with zeros appended
// have different hashes.
uint64_t hash_half(std::string_view key, uint64_t seed) {
  uint64_t state = mix(seed + key.size());
  size_t at = 0;
  for (; at + 8 <= key.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, key.data() + at, 8);
    state = mix(state ^ (word * 0x9e3779b97f4a7c15ULL)) + seed;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, key.data() + at, key.size() - at);
  return mix(state ^ (tail * 0x9e3779b97f4a7c15ULL));
}

}  // namespace

int64_t key_length(int64_t couplings, int64_t levels) {
  return levels > kLevelsOfHalfAByte ? couplings : (couplings + 1) / 2;
}

void encode_key(std::span<const float> couplings, const Quantizer& quantizer,
                std::span<uint8_t> key) {
  const bool halves = quantizer.levels() <= kLevelsOfHalfAByte;
  for (size_t k = 0; k < couplings.size(); ++k) {
    const auto level = static_cast<uint8_t>(quantizer.level(couplings[k]));
    if (!halves)
      key[k] = level;
    else if (k % 2 == 0)
      key[k / 2] = level;
    else
      key[k / 2] = static_cast<uint8_t>(key[k / 2] | level << 4);
  }
}

std::vector<uint8_t> decode_key(std::string_view key, int64_t couplings, int64_t levels) {
  std::vector<uint8_t> result(static_cast<size_t>(couplings));
  for (size_t k = 0; k < result.size(); ++k) {
    if (levels > kLevelsOfHalfAByte)
      result[k] = static_cast<uint8_t>(key[k]);
    else
      result[k] = static_cast<uint8_t>(key[k / 2]) >> (k % 2 == 0 ? 0 : 4) & 0xf;
  }
  return result;
}

KeyHash hash_key(std::string_view key) {
  return {hash_half(key, 0x243f6a8885a308d3ULL), hash_half(key, 0x13198a2e03707344ULL)};
}

}  // namespace remcaps
