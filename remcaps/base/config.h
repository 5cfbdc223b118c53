// Strict reading of YAML sections into option structs.
//
// One function binds the options of a struct to keys. It is used to read them with range checks, to
// reject unknown keys (the error names the nearest known one) and to write the resolved recipe.
//
//   void bind(ConfigSection& section, LossOptions& options) {
//     section.key("m_plus", options.m_plus, {0.0, 1.0});
//     section.key("m_minus", options.m_minus, {0.0, 1.0});
//   }
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace remcaps {

struct IntRange {
  int64_t low, high;
};
struct Range {
  double low, high;
};

class ConfigSection {
 public:
  /// `node` may be null (every option keeps its default). `source` names the recipe in errors,
  /// `prefix` is the section's own path ("routing").
  ConfigSection(YAML::Node node, std::string source, std::string prefix = "");

  void key(const std::string& name, bool& value);
  void key(const std::string& name, int64_t& value, IntRange range);
  void key(const std::string& name, double& value, Range range);
  void key(const std::string& name, std::string& value);
  /// A name out of a fixed list.
  void key(const std::string& name, std::string& value, const std::vector<std::string>& allowed);
  /// An enum whose values 0, 1, ... have these names.
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void key(const std::string& name, Enum& value, const std::vector<std::string>& names) {
    std::string text = names.at(static_cast<size_t>(value));
    key(name, text, names);
    value = static_cast<Enum>(std::find(names.begin(), names.end(), text) - names.begin());
  }
  void key(const std::string& name, std::vector<int64_t>& value, IntRange range);
  void key(const std::string& name, std::vector<double>& value, Range range);
  void key(const std::string& name, std::vector<std::string>& value);

  /// Whether the recipe gives this key itself.
  bool has(const std::string& name) const;

  /// A nested section. Its unknown keys are rejected by its own finish().
  ConfigSection section(const std::string& name);
  /// Puts a finished nested section's resolved values into this one's.
  void adopt(const std::string& name, const ConfigSection& child);

  /// UsageError if the section has a key that was never bound, or one key twice.
  void finish() const;

  /// Every bound key with the value it ended with.
  const YAML::Node& resolved() const { return resolved_; }

  /// "recipe mnist/dr-capsnet: routing.iterations"
  std::string describe(const std::string& name) const;

  [[noreturn]] void reject(const std::string& name, const std::string& found,
                           const std::string& expected) const;

 private:
  template <typename T>
  bool read(const std::string& name, T& value, const char* expected);

  YAML::Node node_;
  std::string source_, prefix_;
  std::vector<std::string> known_;
  YAML::Node resolved_;
};

/// Parses a YAML text. YAML::Exception if it is not valid, is longer than 256 KiB, or has more
/// than 4,096 values or 64 levels, with each alias (*name) counted as what it stands for. yaml-cpp
/// itself would take hours for some short texts, and overflow the stack for an alias of a value
/// that contains it.
YAML::Node parse_yaml(const std::string& text);

/// A key of a top-level section that has a new name.
struct RenamedKey {
  std::string section, old_name, new_name;
};
using RenamedKeys = std::vector<RenamedKey>;

/// Gives the keys in `root` their new names. UsageError, naming `source`, if a section has a key
/// under both names.
void rename_keys(YAML::Node& root, const RenamedKeys& renamed, const std::string& source);

/// Reads a YAML file and the files it includes: `include: [base.yaml, ...]`, with paths relative to
/// the including file. They are read first, in order; the file's own keys override theirs, section
/// by section. UsageError names file and line of a key that a section of one file has twice. Keys
/// with a new name are renamed in every file.
YAML::Node load_yaml_with_includes(const std::string& path, const RenamedKeys& renamed = {});

/// Merges `over` into `base`: maps merge key by key, everything else is replaced.
YAML::Node merge_yaml(const YAML::Node& base, const YAML::Node& over);

/// Applies "a.b.c=value" (value is YAML) to `root`.
void set_yaml_path(YAML::Node& root, const std::string& assignment);

/// The reverse: every value that is not a map, by its path: {"a.b.c": "value"}.
std::map<std::string, std::string> yaml_paths(const YAML::Node& root);

}  // namespace remcaps
