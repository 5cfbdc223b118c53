// The dictionary of parse trees: how often each key was seen in each class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "remcaps/parse_tree/keys.h"

namespace remcaps {

/// Counts keys as they come. A distinct key costs about 60 bytes and, as long as all stored keys
/// fit in `key_bytes`, the key itself. Keys are looked up by a 128-bit hash. A match is compared
/// byte by byte with the stored key; a key that was not stored is known by its hash alone (the
/// chance of one collision among a million keys is 10^-27).
class Dictionary {
 public:
  using Hasher = std::function<KeyHash(std::string_view)>;
  static constexpr size_t kDefaultKeyBytes = size_t{64} << 20;

  explicit Dictionary(int64_t classes, size_t key_bytes = kDefaultKeyBytes,
                      Hasher hasher = hash_key);

  /// All keys of a class must have the same length.
  void add(int64_t class_index, std::string_view key);

  /// All that was counted, for merge() in another process of the same program.
  std::string to_bytes() const;
  /// Where in a whole sequence of keys the key `place` of a part stands; both from 0.
  using Place = std::function<int64_t(size_t part, int64_t place)>;
  /// Adds what dictionaries of parts of a sequence have counted. This one becomes what it would be
  /// if it had counted the whole sequence.
  void merge(const std::vector<std::string>& parts, const Place& place);

  struct Tree {
    int64_t count = 0;
    std::string_view key;  ///< empty if only the hash is known
  };

  int64_t classes() const { return static_cast<int64_t>(classes_.size()); }
  std::vector<int64_t> samples_per_class() const;
  std::vector<int64_t> keys_per_class() const;
  /// H_j in bits; 0 for a class without samples.
  std::vector<double> entropy_per_class() const;
  /// At most `limit` trees of a class, the most frequent first. Trees of the same count are in the
  /// order in which they were first seen.
  std::vector<Tree> most_frequent(int64_t class_index, size_t limit) const;
  /// The bits that are not the same in all keys of a class, as many bytes as a key has. Empty for a
  /// class without samples.
  const std::string& varying_bits(int64_t class_index) const { return classes_[class_index].bits; }
  /// Distinct keys that are known by their hash alone.
  int64_t unverified() const { return unverified_; }

 private:
  struct Entry {
    uint32_t class_index;
    uint32_t next;    ///< the next entry with the same hash, or kNone
    uint64_t offset;  ///< of the key in keys_, or kNotStored
    uint64_t length;
    int64_t count;
    int64_t place;  ///< how many keys came before it was first seen
  };
  struct ClassKeys {
    int64_t samples = 0;
    std::string first;  ///< the first key
    std::string bits;   ///< the bits in which a later key differed from it
  };
  /// Counts the key of `entry`; an empty text for one that is known by its hash.
  void count(Entry entry, KeyHash hash, std::string_view key);
  bool matches(const Entry& entry, const Entry& given, std::string_view key) const;
  static void note_difference(ClassKeys& of_class, std::string_view key);

  size_t key_bytes_;
  Hasher hasher_;
  std::unordered_map<KeyHash, uint32_t> first_;  ///< hash -> place in entries_
  std::vector<Entry> entries_;
  std::vector<char> keys_;
  std::vector<ClassKeys> classes_;
  int64_t added_ = 0;
  int64_t unverified_ = 0;
};

/// Shannon entropy of counts, in bits.
double entropy_bits(const std::vector<int64_t>& counts);

}  // namespace remcaps
