#include "remcaps/torch/random.h"

namespace remcaps {
namespace {

constexpr int64_t kMask = 0xffffffff;

// (h * multiplier) mod 2^32 on int64 tensors. The product wraps modulo 2^64; its low 32 bits are
// right.
torch::Tensor multiply32(const torch::Tensor& h, uint32_t multiplier) {
  return h.mul(static_cast<int64_t>(multiplier)).bitwise_and(kMask);
}

torch::Tensor shifted_xor(const torch::Tensor& h, int64_t bits) {
  return h.bitwise_xor(h.bitwise_right_shift(bits));
}

}  // namespace

torch::Tensor random_uniform(uint64_t seed, RandomStream stream, uint64_t epoch,
                             const torch::Tensor& samples, uint32_t draw) {
  const int64_t key = random_key(seed, stream, epoch, draw);
  const auto mix_tensor = [](torch::Tensor h) {
    h = multiply32(shifted_xor(h, 16), kMixMultiplier1);
    h = multiply32(shifted_xor(h, 15), kMixMultiplier2);
    return shifted_xor(h, 16);
  };
  const torch::Tensor low = multiply32(samples.bitwise_and(kMask), kSampleMultiplier);
  const torch::Tensor high = samples.bitwise_right_shift(32);
  torch::Tensor h = mix_tensor(low.bitwise_xor(key));
  h = mix_tensor((h + high).bitwise_and(kMask));
  return h.bitwise_right_shift(8).to(torch::kFloat32).mul(1.0 / 16777216.0);
}

}  // namespace remcaps
