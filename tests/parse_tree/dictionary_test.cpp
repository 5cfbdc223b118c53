#include "remcaps/parse_tree/dictionary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;

TEST(Entropy, IsInBits) {
  EXPECT_EQ(entropy_bits({}), 0);
  EXPECT_EQ(entropy_bits({7}), 0);
  EXPECT_FALSE(std::signbit(entropy_bits({7})));
  EXPECT_DOUBLE_EQ(entropy_bits({1, 1, 1, 1}), 2);
  EXPECT_DOUBLE_EQ(entropy_bits({2, 1, 1}), 1.5);
}

TEST(Dictionary, CountsKeysPerClass) {
  Dictionary dictionary(3);
  for (const char* key : {"aa", "ab", "aa", "aa"}) dictionary.add(0, key);
  dictionary.add(2, "aa");
  EXPECT_THAT(dictionary.samples_per_class(), ElementsAre(4, 0, 1));
  EXPECT_THAT(dictionary.keys_per_class(), ElementsAre(2, 0, 1));
  EXPECT_THAT(dictionary.entropy_per_class(),
              ElementsAre(::testing::DoubleNear(0.811278124459, 1e-9), 0, 0));
  const auto trees = dictionary.most_frequent(0, 5);
  ASSERT_EQ(trees.size(), 2u);
  EXPECT_EQ(trees[0].count, 3);
  EXPECT_EQ(trees[0].key, "aa");
  EXPECT_EQ(trees[1].key, "ab");
  EXPECT_EQ(dictionary.most_frequent(0, 1).size(), 1u);
}

TEST(Dictionary, KeysThatCollideAreToldApartByTheirBytes) {
  Dictionary dictionary(2, Dictionary::kDefaultKeyBytes,
                        [](std::string_view) { return KeyHash{}; });
  for (const char* key : {"aa", "ab", "ac", "ab"}) dictionary.add(1, key);
  dictionary.add(0, "a");
  EXPECT_THAT(dictionary.keys_per_class(), ElementsAre(1, 3));
  EXPECT_EQ(dictionary.most_frequent(1, 1)[0].key, "ab");
  EXPECT_EQ(dictionary.unverified(), 0);
}

TEST(Dictionary, PastItsMemoryKeysAreKnownByTheirHash) {
  Dictionary dictionary(1, /*key_bytes=*/4);
  for (const char* key : {"aa", "bb", "cc", "cc", "dd"}) dictionary.add(0, key);
  EXPECT_THAT(dictionary.keys_per_class(), ElementsAre(4));
  EXPECT_EQ(dictionary.unverified(), 2);
  EXPECT_EQ(dictionary.most_frequent(0, 1)[0].count, 2);
  EXPECT_TRUE(dictionary.most_frequent(0, 1)[0].key.empty());
}

TEST(Dictionary, MergedDictionariesCountAsOneThatSawEverything) {
  // Stored keys, keys known by their hash, a class that only one of them has seen, collisions.
  const Dictionary::Hasher same = [](std::string_view) { return KeyHash{}; };
  for (const auto& hasher : {Dictionary::Hasher(hash_key), same}) {
    for (const size_t key_bytes : {size_t{4}, Dictionary::kDefaultKeyBytes}) {
      if (key_bytes == 4 && hasher(std::string_view("a")) == KeyHash{}) continue;
      Dictionary all(3, key_bytes, hasher);
      std::vector<Dictionary> parts(2, Dictionary(3, key_bytes, hasher));
      const std::pair<int64_t, const char*> keys[] = {{0, "aa"}, {0, "ee"}, {0, "cc"}, {0, "ab"},
                                                      {0, "ab"}, {0, "cc"}, {0, "dd"}, {2, "zz"},
                                                      {0, "ff"}, {0, "cc"}, {0, "aa"}};
      for (size_t k = 0; k < std::size(keys); ++k) {
        const auto& [of_class, key] = keys[k];
        parts[k % 2].add(of_class, key);
        all.add(of_class, key);
      }
      Dictionary merged(3, key_bytes, hasher);
      merged.merge({parts[0].to_bytes(), parts[1].to_bytes()}, [](size_t part, int64_t place) {
        return 2 * place + static_cast<int64_t>(part);
      });
      EXPECT_EQ(merged.samples_per_class(), all.samples_per_class());
      EXPECT_EQ(merged.keys_per_class(), all.keys_per_class());
      EXPECT_EQ(merged.entropy_per_class(), all.entropy_per_class());
      EXPECT_EQ(merged.unverified(), all.unverified());
      for (const int64_t of_class : {0, 1, 2}) {
        EXPECT_EQ(merged.varying_bits(of_class), all.varying_bits(of_class));
        const auto expected = all.most_frequent(of_class, 9),
                   found = merged.most_frequent(of_class, 9);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t k = 0; k < found.size(); ++k) {
          EXPECT_EQ(found[k].count, expected[k].count);
          EXPECT_EQ(found[k].key, expected[k].key);
        }
      }
    }
  }
  Dictionary broken(1);
  EXPECT_THROW(broken.merge({"abc"}, [](size_t, int64_t place) { return place; }), Error);
}

TEST(Dictionary, KnowsTheBitsInWhichTheKeysOfAClassDiffer) {
  Dictionary dictionary(3, /*key_bytes=*/2);  // also where keys are known by their hash alone
  for (const char* key : {"aba", "aba", "adb", "abb"}) dictionary.add(0, key);
  dictionary.add(2, "xyz");
  EXPECT_EQ(dictionary.varying_bits(0), (std::string{0, 'b' ^ 'd', 'a' ^ 'b'}));
  EXPECT_TRUE(dictionary.varying_bits(1).empty());
  EXPECT_EQ(dictionary.varying_bits(2), std::string(3, '\0'));
  EXPECT_THROW(dictionary.add(2, "xy"), Error);
}

TEST(Dictionary, ClassOutOfRangeIsAnError) {
  Dictionary dictionary(2);
  EXPECT_THROW(dictionary.add(2, "a"), Error);
}

}  // namespace
}  // namespace remcaps
