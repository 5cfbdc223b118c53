#include "remcaps/base/random.h"

#include <numeric>
#include <random>

namespace remcaps {
namespace {

constexpr uint32_t kMultiply1 = 0x7feb352d;
constexpr uint32_t kMultiply2 = 0x846ca68b;
constexpr int64_t kMask = 0xffffffff;

// A full-avalanche 32-bit mixer (xor-shift-multiply).
uint32_t mix(uint32_t h) {
  h ^= h >> 16;
  h *= kMultiply1;
  h ^= h >> 15;
  h *= kMultiply2;
  h ^= h >> 16;
  return h;
}

// The part of the key that a whole batch shares.
uint32_t batch_key(uint64_t seed, RandomStream stream, uint64_t epoch, uint32_t draw) {
  uint32_t h = mix(static_cast<uint32_t>(seed) + 0x9e3779b9u);
  h = mix(h ^ static_cast<uint32_t>(seed >> 32));
  h = mix(h + static_cast<uint32_t>(stream) * 0x85ebca6bu);
  h = mix(h ^ static_cast<uint32_t>(epoch));
  return mix(h + draw * 0xc2b2ae35u);
}

// (h * multiplier) mod 2^32 on int64 tensors: the product of two 32-bit numbers wraps modulo 2^64,
// which leaves its low 32 bits right.
torch::Tensor multiply32(const torch::Tensor& h, uint32_t multiplier) {
  return h.mul(static_cast<int64_t>(multiplier)).bitwise_and(kMask);
}

torch::Tensor shifted_xor(const torch::Tensor& h, int64_t bits) {
  return h.bitwise_xor(h.bitwise_right_shift(bits));
}

}  // namespace

uint32_t random_bits(uint64_t seed, RandomStream stream, uint64_t epoch, uint64_t sample,
                     uint32_t draw) {
  const uint32_t low = static_cast<uint32_t>(sample) * 0x9e3779b1u;
  return mix(mix(batch_key(seed, stream, epoch, draw) ^ low) + static_cast<uint32_t>(sample >> 32));
}

torch::Tensor random_uniform(uint64_t seed, RandomStream stream, uint64_t epoch,
                             const torch::Tensor& samples, uint32_t draw) {
  const int64_t key = batch_key(seed, stream, epoch, draw);
  const auto mix_tensor = [](torch::Tensor h) {
    h = multiply32(shifted_xor(h, 16), kMultiply1);
    h = multiply32(shifted_xor(h, 15), kMultiply2);
    return shifted_xor(h, 16);
  };
  const torch::Tensor low = multiply32(samples.bitwise_and(kMask), 0x9e3779b1u);
  const torch::Tensor high = samples.bitwise_right_shift(32);
  torch::Tensor h = mix_tensor(low.bitwise_xor(key));
  h = mix_tensor((h + high).bitwise_and(kMask));
  return h.bitwise_right_shift(8).to(torch::kFloat32).mul(1.0 / 16777216.0);
}

torch::Tensor random_permutation(int64_t n, uint64_t seed, uint64_t epoch) {
  torch::Tensor order = torch::arange(n, torch::kInt64);
  auto* data = order.data_ptr<int64_t>();
  for (int64_t i = n - 1; i > 0; --i) {
    const uint64_t bits =
        random_bits(seed, RandomStream::kShuffle, epoch, static_cast<uint64_t>(i), 0);
    // Fixed-point scaling into 0..i; the bias of a 32-bit draw is below 2^-14 for a million images.
    const auto j = static_cast<int64_t>((bits * static_cast<uint64_t>(i + 1)) >> 32);
    std::swap(data[i], data[j]);
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
