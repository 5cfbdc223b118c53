// The dictionary of parse trees: how often each key was seen in each class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace remcaps {

struct KeyHash {
  uint64_t low = 0, high = 0;
  bool operator==(const KeyHash&) const = default;
};

/// 128 bits of the key's bytes, two independently seeded halves.
KeyHash hash_key(std::string_view key);

/// Streaming: a key costs some 50 bytes once its class has seen it, however long it is. Keys are
/// told apart by a 128-bit hash, and a match is verified byte by byte against the stored key as
/// long as the stored keys fit in `key_bytes`; past that, new keys are known by their hash alone
/// (the chance of one collision among a million keys is 10^-27).
class Dictionary {
 public:
  using Hasher = std::function<KeyHash(std::string_view)>;
  static constexpr size_t kDefaultKeyBytes = size_t{64} << 20;

  explicit Dictionary(int64_t classes, size_t key_bytes = kDefaultKeyBytes,
                      Hasher hasher = hash_key);

  void add(int64_t class_index, std::string_view key);

  struct Tree {
    int64_t count = 0;
    std::string_view key;  ///< empty where only the hash is known
  };

  int64_t classes() const { return static_cast<int64_t>(classes_.size()); }
  std::vector<int64_t> samples_per_class() const;
  std::vector<int64_t> keys_per_class() const;
  /// H_j in bits; 0 for a class without samples.
  std::vector<double> entropy_per_class() const;
  /// A class's trees, most frequent first (of equally frequent ones the first seen first), at most
  /// `limit` of them.
  std::vector<Tree> most_frequent(int64_t class_index, size_t limit) const;
  /// Bits that are not the same in all keys of a class, as bytes of the first key's length; empty
  /// for a class without samples. All keys of a class are of one length.
  const std::string& varying_bits(int64_t class_index) const { return classes_[class_index].bits; }
  /// Distinct keys that are known by their hash alone.
  int64_t unverified() const { return unverified_; }

 private:
  struct Entry {
    uint32_t class_index;
    uint32_t next;    ///< the next entry of the same hash, or kNone
    uint64_t offset;  ///< of the key in keys_, or kNotStored
    uint64_t length;
    int64_t count;
  };
  struct ClassKeys {
    int64_t samples = 0;
    std::string first;  ///< its first key
    std::string bits;   ///< in which a later one differed from it
  };
  struct HashOfHash {
    size_t operator()(const KeyHash& hash) const { return hash.low; }
  };
  bool matches(const Entry& entry, int64_t class_index, std::string_view key) const;
  static void note_difference(ClassKeys& of_class, std::string_view key);

  size_t key_bytes_;
  Hasher hasher_;
  std::unordered_map<KeyHash, uint32_t, HashOfHash> first_;  ///< hash -> place in entries_
  std::vector<Entry> entries_;
  std::vector<char> keys_;
  std::vector<ClassKeys> classes_;
  int64_t unverified_ = 0;
};

/// Shannon entropy of counts, in bits.
double entropy_bits(const std::vector<int64_t>& counts);

}  // namespace remcaps
