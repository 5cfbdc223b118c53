#include "remcaps/kernels/update/update.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels {
namespace {

// Arrays that are aligned take the SIMD loop, others the plain one. Both do what formulas.h says.
TEST(UpdateKernel, UpdatesEveryParameterWhateverTheAlignment) {
  constexpr int64_t kCount = 40001;
  const AdamConstants adam;
  const StepNumbers step{.step_size = 1e-2F, .second_correction = 0.5F, .lambda = 1e-2F};
  for (const int64_t offset : {0, 1}) {
    std::mt19937 generator(3);
    std::normal_distribution<float> normal;
    const Buffer p(kCount + 1), g(kCount + 1), m(kCount + 1), v(kCount + 1);
    std::vector<uint8_t> dead(kCount);
    std::vector<float> expected(kCount);
    for (int64_t x = 0; x < kCount; ++x) {
      const int64_t at = offset + x;
      p.get()[at] = normal(generator);
      g.get()[at] = normal(generator);
      m.get()[at] = normal(generator);
      v.get()[at] = std::abs(normal(generator));
      dead[x] = x % 3 == 0;
      float first = m.get()[at], second = v.get()[at];
      expected[x] = p.get()[at];
      update_parameter(adam, step, g.get()[at], expected[x], first, second);
      if (dead[x] != 0) expected[x] = 0;
    }
    cpu::update({{.parameter = p.get() + offset,
                  .gradient = g.get() + offset,
                  .first = m.get() + offset,
                  .second = v.get() + offset,
                  .dead = dead.data(),
                  .count = kCount,
                  .shrink = true}},
                adam, step);
    for (int64_t x = 0; x < kCount; ++x)
      ASSERT_NEAR(p.get()[offset + x], expected[x], 1e-6F * (1 + std::abs(expected[x])))
          << x << ", offset " << offset;
  }
}

}  // namespace
}  // namespace remcaps::kernels
