// A softmax in plain code, for the kernels whose softmax takes no time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace remcaps::kernels {

/// In place, over `count` logits.
inline void softmax(float* logits, int64_t count) {
  const float largest = *std::max_element(logits, logits + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += logits[i] = std::exp(logits[i] - largest);
  for (int64_t i = 0; i < count; ++i) logits[i] /= sum;
}

}  // namespace remcaps::kernels
