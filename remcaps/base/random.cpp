#include "remcaps/base/random.h"

#include <numeric>
#include <random>
#include <utility>

namespace remcaps {
namespace {

// A full-avalanche 32-bit mixer (xor-shift-multiply).
uint32_t mix(uint32_t h) {
  h ^= h >> 16;
  h *= kMixMultiplier1;
  h ^= h >> 15;
  h *= kMixMultiplier2;
  h ^= h >> 16;
  return h;
}

}  // namespace

uint32_t random_key(uint64_t seed, RandomStream stream, uint64_t epoch, uint32_t draw) {
  uint32_t h = mix(static_cast<uint32_t>(seed) + 0x9e3779b9u);
  h = mix(h ^ static_cast<uint32_t>(seed >> 32));
  h = mix(h + static_cast<uint32_t>(stream) * 0x85ebca6bu);
  h = mix(h ^ static_cast<uint32_t>(epoch));
  return mix(h + draw * 0xc2b2ae35u);
}

uint32_t random_bits(uint64_t seed, RandomStream stream, uint64_t epoch, uint64_t sample,
                     uint32_t draw) {
  const uint32_t low = static_cast<uint32_t>(sample) * kSampleMultiplier;
  return mix(mix(random_key(seed, stream, epoch, draw) ^ low) +
             static_cast<uint32_t>(sample >> 32));
}

std::vector<int64_t> random_permutation(int64_t n, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i > 0; --i) {
    const uint64_t bits =
        random_bits(seed, RandomStream::kShuffle, epoch, static_cast<uint64_t>(i), 0);
    // Fixed-point scaling into 0..i; the bias of a 32-bit draw is below 2^-14 for a million images.
    const uint64_t j = (bits * static_cast<uint64_t>(i + 1)) >> 32;
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

std::vector<int64_t> numpy_shuffle(int64_t n, uint32_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::mt19937 generator(seed);
  for (int64_t i = n - 1; i > 0; --i) {
    uint32_t mask = static_cast<uint32_t>(i);
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    uint32_t j = 0;
    do {
      j = generator() & mask;
    } while (j > static_cast<uint32_t>(i));
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

}  // namespace remcaps
