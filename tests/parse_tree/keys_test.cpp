#include "remcaps/parse_tree/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace remcaps {
namespace {

using ::testing::ElementsAreArray;

std::string key_of(const std::vector<float>& couplings, const Quantizer& quantizer) {
  const auto count = static_cast<int64_t>(couplings.size());
  std::vector<uint8_t> key(static_cast<size_t>(key_length(count, quantizer.levels())), 0xff);
  encode_key(couplings, quantizer, key);
  return {key.begin(), key.end()};
}

TEST(Keys, HoldTwoLevelsInAByteUpToSixteenLevels) {
  EXPECT_EQ(key_of({0.3F, 1.0F, 0.2F}, Quantizer::uniform(11)), "\xa3\x02");
  EXPECT_EQ(key_of({0.3F, 1.0F, 0.2F}, Quantizer::uniform(21)), "\x06\x14\x04");
}

TEST(Keys, DecodeToTheLevelsThatWereEncoded) {
  for (const int64_t levels : {2, 11, 16, 17, 128, 256}) {
    for (const size_t children : {0, 1, 6, 7}) {
      const Quantizer quantizer = Quantizer::uniform(levels);
      std::vector<float> couplings;
      std::vector<int64_t> expected;
      for (size_t k = 0; k < children; ++k) {
        couplings.push_back(static_cast<float>((k * 5 + 3) % 8) / 7);
        expected.push_back(quantizer.level(couplings.back()));
      }
      const std::string key = key_of(couplings, quantizer);
      EXPECT_THAT(decode_key(key, static_cast<int64_t>(children), levels),
                  ElementsAreArray(expected))
          << levels;
    }
  }
}

TEST(Keys, HashesOfSimilarKeysDiffer) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (int length = 0; length < 40; ++length) {
    const std::string zeros(length, '\0');
    const KeyHash hash = hash_key(zeros);
    EXPECT_TRUE(seen.insert({hash.low, hash.high}).second) << length;
    for (int at = 0; at < length; ++at) {
      std::string key = zeros;
      key[at] = 1;
      const KeyHash other = hash_key(key);
      EXPECT_TRUE(seen.insert({other.low, other.high}).second);
      EXPECT_NE(other.low, hash.low);
      EXPECT_NE(other.high, hash.high);
    }
  }
}

}  // namespace
}  // namespace remcaps
