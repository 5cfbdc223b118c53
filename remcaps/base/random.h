// Counter-based random numbers: the same key gives the same number on any device, thread count and
// order of evaluation, so augmentation and shuffling resume exactly at any step.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace remcaps {

/// Purposes that must not share a stream of random numbers.
enum class RandomStream : uint32_t { kShuffle = 1, kAugment = 2, kPruning = 3, kExplain = 4 };

/// A 32-bit hash of (seed, stream, epoch, sample, draw).
uint32_t random_bits(uint64_t seed, RandomStream stream, uint64_t epoch, uint64_t sample,
                     uint32_t draw);

/// Uniform numbers in [0, 1) for each of `samples` (int64 [B], on any device): float32 [B], equal
/// to random_bits(...) * 2^-32 rounded down to 24 bits.
torch::Tensor random_uniform(uint64_t seed, RandomStream stream, uint64_t epoch,
                             const torch::Tensor& samples, uint32_t draw);

/// A permutation of 0..n-1 for (seed, epoch), int64 on the CPU.
torch::Tensor random_permutation(int64_t n, uint64_t seed, uint64_t epoch);

/// The permutation that numpy.random.seed(seed); numpy.random.shuffle(list(range(n))) makes: the
/// published code splits training and validation with it.
std::vector<int64_t> numpy_shuffle(int64_t n, uint32_t seed);

}  // namespace remcaps
