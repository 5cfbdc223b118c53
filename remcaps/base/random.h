// Counter-based random numbers: the same key gives the same number on any device, with any number
// of threads and in any order. So augmentation and shuffling resume exactly at any step.
#pragma once

#include <cstdint>
#include <vector>

namespace remcaps {

/// Purposes that must not share a stream of random numbers.
enum class RandomStream : uint32_t { kShuffle = 1, kAugment = 2, kPruning = 3, kExplain = 4 };

/// Constants of the hash, for code that computes it on tensors (torch/random.h).
constexpr uint32_t kMixMultiplier1 = 0x7feb352d, kMixMultiplier2 = 0x846ca68b;
constexpr uint32_t kSampleMultiplier = 0x9e3779b1;

/// The part of a hash that all samples of a batch share.
uint32_t random_key(uint64_t seed, RandomStream stream, uint64_t epoch, uint32_t draw);

/// A 32-bit hash of (seed, stream, epoch, sample, draw).
uint32_t random_bits(uint64_t seed, RandomStream stream, uint64_t epoch, uint64_t sample,
                     uint32_t draw);

/// A permutation of 0..n-1 for (seed, epoch).
std::vector<int64_t> random_permutation(int64_t n, uint64_t seed, uint64_t epoch);

/// The permutation made by numpy.random.seed(seed); numpy.random.shuffle(list(range(n))). The
/// published code splits training and validation images with it.
std::vector<int64_t> numpy_shuffle(int64_t n, uint32_t seed);

}  // namespace remcaps
