// Keys: the levels of an image's couplings as bytes, by which parse trees are told apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

/// The largest K at which two levels share a byte of a key.
constexpr int64_t kLevelsOfHalfAByte = 16;

/// Bytes of a key of `couplings` couplings.
int64_t key_length(int64_t couplings, int64_t levels);

/// The key of couplings: their levels 0..K-1, two to a byte if K <= 16 (the first in the low half).
/// `key` has key_length() bytes.
void encode_key(std::span<const float> couplings, const Quantizer& quantizer,
                std::span<uint8_t> key);

/// The levels in a key of `couplings` couplings.
std::vector<uint8_t> decode_key(std::string_view key, int64_t couplings, int64_t levels);

struct KeyHash {
  uint64_t low = 0, high = 0;
  bool operator==(const KeyHash&) const = default;
};

/// 128 bits: two hashes of the key's bytes with different seeds.
KeyHash hash_key(std::string_view key);

}  // namespace remcaps

template <>
struct std::hash<remcaps::KeyHash> {
  size_t operator()(const remcaps::KeyHash& hash) const { return hash.low; }
};
