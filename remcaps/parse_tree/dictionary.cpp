#include "remcaps/parse_tree/dictionary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kNotStored = std::numeric_limits<uint64_t>::max();

// The bytes of a number or of a plain structure.
template <typename Value>
void append(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string_view take_text(std::string_view& bytes, size_t length) {
  check(length <= bytes.size(), "dictionary: {} bytes where {} were expected", bytes.size(),
        length);
  const std::string_view text = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return text;
}

template <typename Value>
Value take(std::string_view& bytes) {
  Value value;
  std::memcpy(&value, take_text(bytes, sizeof value).data(), sizeof value);
  return value;
}

}  // namespace

double entropy_bits(const std::vector<int64_t>& counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0 || count == total) continue;  // 0 bits, and no -0
    const double share = static_cast<double>(count) / static_cast<double>(total);
    entropy -= share * std::log2(share);
  }
  return entropy;
}

Dictionary::Dictionary(int64_t classes, size_t key_bytes, Hasher hasher)
    : key_bytes_(key_bytes), hasher_(std::move(hasher)), classes_(classes) {}

bool Dictionary::matches(const Entry& entry, const Entry& given, std::string_view key) const {
  if (entry.class_index != given.class_index || entry.length != given.length) return false;
  return entry.offset == kNotStored || key.empty() ||
         std::memcmp(keys_.data() + entry.offset, key.data(), key.size()) == 0;
}

void Dictionary::add(int64_t class_index, std::string_view key) {
  check(class_index >= 0 && class_index < classes(), "dictionary: class {} of {}", class_index,
        classes());
  ++classes_[class_index].samples;
  KeyHash hash = hasher_(key);
  hash.low += static_cast<uint64_t>(class_index);
  count({.class_index = static_cast<uint32_t>(class_index),
         .next = kNone,
         .offset = kNotStored,
         .length = key.size(),
         .count = 1,
         .place = added_++},
        hash, key);
}

void Dictionary::count(Entry entry, KeyHash hash, std::string_view key) {
  const auto [found, is_new] = first_.try_emplace(hash, static_cast<uint32_t>(entries_.size()));
  for (uint32_t at = is_new ? kNone : found->second; at != kNone; at = entries_[at].next) {
    if (matches(entries_[at], entry, key)) {
      entries_[at].count += entry.count;
      return;
    }
  }
  if (!key.empty()) note_difference(classes_[entry.class_index], key);
  entry.next = is_new ? kNone : found->second;
  entry.offset = kNotStored;
  if (key.size() == entry.length && keys_.size() + key.size() <= key_bytes_) {
    entry.offset = keys_.size();
    keys_.insert(keys_.end(), key.begin(), key.end());
  } else {
    ++unverified_;
  }
  check(entries_.size() < kNone, "dictionary: more than {} distinct keys", kNone);
  found->second = static_cast<uint32_t>(entries_.size());
  entries_.push_back(entry);
}

std::string Dictionary::to_bytes() const {
  std::vector<KeyHash> hashes(entries_.size());
  for (const auto& [hash, first] : first_)
    for (uint32_t at = first; at != kNone; at = entries_[at].next) hashes[at] = hash;
  std::string bytes;
  for (const ClassKeys& each : classes_) {
    append(bytes, each.samples);
    append(bytes, static_cast<uint64_t>(each.first.size()));
    bytes += each.first + each.bits;
  }
  for (size_t k = 0; k < entries_.size(); ++k) {
    append(bytes, entries_[k]);
    append(bytes, hashes[k]);
    if (entries_[k].offset != kNotStored)
      bytes.append(keys_.data() + entries_[k].offset, entries_[k].length);
  }
  return bytes;
}

void Dictionary::merge(const std::vector<std::string>& parts, const Place& place) {
  struct Counted {
    Entry entry;
    KeyHash hash;
    std::string_view key;
  };
  std::vector<Counted> all;
  for (size_t part = 0; part < parts.size(); ++part) {
    std::string_view bytes = parts[part];
    for (ClassKeys& each : classes_) {
      const auto samples = take<int64_t>(bytes);
      each.samples += samples;
      added_ += samples;
      const auto length = take<uint64_t>(bytes);
      const std::string first(take_text(bytes, length)), bits(take_text(bytes, length));
      if (length == 0) continue;
      note_difference(each, first);
      for (size_t at = 0; at < length; ++at)
        each.bits[at] = static_cast<char>(each.bits[at] | bits[at]);
    }
    while (!bytes.empty()) {
      auto entry = take<Entry>(bytes);
      const auto hash = take<KeyHash>(bytes);
      entry.place = place(part, entry.place);
      all.push_back({entry, hash, take_text(bytes, entry.offset == kNotStored ? 0 : entry.length)});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Counted& a, const Counted& b) { return a.entry.place < b.entry.place; });
  for (const Counted& each : all) count(each.entry, each.hash, each.key);
}

void Dictionary::note_difference(ClassKeys& of_class, std::string_view key) {
  if (of_class.first.empty()) {
    of_class.first = key;
    of_class.bits.assign(key.size(), '\0');
  }
  check(key.size() == of_class.first.size(), "dictionary: a key of {} bytes after one of {}",
        key.size(), of_class.first.size());
  for (size_t at = 0; at < key.size(); ++at)
    of_class.bits[at] = static_cast<char>(of_class.bits[at] | (key[at] ^ of_class.first[at]));
}

std::vector<int64_t> Dictionary::samples_per_class() const {
  std::vector<int64_t> samples;
  for (const ClassKeys& of_class : classes_) samples.push_back(of_class.samples);
  return samples;
}

std::vector<int64_t> Dictionary::keys_per_class() const {
  std::vector<int64_t> keys(classes(), 0);
  for (const Entry& entry : entries_) ++keys[entry.class_index];
  return keys;
}

std::vector<double> Dictionary::entropy_per_class() const {
  std::vector<std::vector<int64_t>> counts(classes());
  for (const Entry& entry : entries_) counts[entry.class_index].push_back(entry.count);
  std::vector<double> entropies;
  for (const auto& of_class : counts) entropies.push_back(entropy_bits(of_class));
  return entropies;
}

std::vector<Dictionary::Tree> Dictionary::most_frequent(int64_t class_index, size_t limit) const {
  std::vector<const Entry*> found;
  for (const Entry& entry : entries_)
    if (entry.class_index == class_index) found.push_back(&entry);
  std::stable_sort(found.begin(), found.end(),
                   [](const Entry* a, const Entry* b) { return a->count > b->count; });
  if (found.size() > limit) found.resize(limit);
  std::vector<Tree> trees;
  for (const Entry* entry : found) {
    Tree tree;
    tree.count = entry->count;
    if (entry->offset != kNotStored) tree.key = {keys_.data() + entry->offset, entry->length};
    trees.push_back(tree);
  }
  return trees;
}

}  // namespace remcaps
