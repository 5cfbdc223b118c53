#include "remcaps/base/config.h"

#include <fmt/ranges.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/names.h"

namespace remcaps {
namespace {

std::string text_of(const YAML::Node& node) {
  YAML::Emitter emitter;
  emitter << YAML::Flow << node;
  return emitter.good() ? emitter.c_str() : "?";
}

template <typename T>
T value_of(const YAML::Node& node) {
  return node.as<T>();
}

// In base 10: yaml-cpp reads 010 as eight and 0x10 as sixteen.
template <>
int64_t value_of(const YAML::Node& node) {
  const std::string text = node.as<std::string>();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw YAML::TypedBadConversion<int64_t>(node.Mark());
  return value;
}

template <>
std::vector<int64_t> value_of(const YAML::Node& node) {
  if (!node.IsSequence()) throw YAML::TypedBadConversion<std::vector<int64_t>>(node.Mark());
  std::vector<int64_t> values;
  for (const YAML::Node& item : node) values.push_back(value_of<int64_t>(item));
  return values;
}

constexpr size_t kMostYamlBytes = 1 << 18;
constexpr size_t kMostYamlNodes = 4096, kMostYamlLevels = 64;

/// Counts the values of a YAML text while it is parsed, before a tree is made of them.
class YamlBounds : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    open(mark, anchor);
    close();
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string&) override {
    open(mark, anchor);
    close();
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = sizes_.find(anchor);
    if (found == sizes_.end())
      throw YAML::ParserException(mark, "an alias of a value that contains it");
    add(mark, found->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YAML::anchor_t anchor;  // 0: none
    size_t before;          // nodes of the text before this one
  };

  void open(const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({anchor, nodes_});
    if (open_.size() > kMostYamlLevels)
      throw YAML::ParserException(mark, fmt::format("more than {} levels", kMostYamlLevels));
    add(mark, 1);
  }
  void close() {
    if (open_.back().anchor != 0) sizes_[open_.back().anchor] = nodes_ - open_.back().before;
    open_.pop_back();
  }
  void add(const YAML::Mark& mark, size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMostYamlNodes)
      throw YAML::ParserException(mark, fmt::format("more than {} values", kMostYamlNodes));
  }

  std::vector<Open> open_;
  std::map<YAML::anchor_t, size_t> sizes_;  // nodes of each anchored value that is complete
  size_t nodes_ = 0;
};

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  if (text.size() > kMostYamlBytes)
    throw YAML::ParserException(YAML::Mark(), fmt::format("more than {} bytes", kMostYamlBytes));
  std::istringstream in(text);
  YamlBounds bounds;
  YAML::Parser(in).HandleNextDocument(bounds);
  return YAML::Load(text);
}

ConfigSection::ConfigSection(YAML::Node node, std::string source, std::string prefix)
    : node_(node ? node : YAML::Node(YAML::NodeType::Map)),
      source_(std::move(source)),
      prefix_(std::move(prefix)),
      resolved_(YAML::NodeType::Map) {
  if (node_.IsNull()) node_ = YAML::Node(YAML::NodeType::Map);
  if (!node_.IsMap())
    throw UsageError(fmt::format("recipe {}: {} is {}; expected a section of keys", source_,
                                 prefix_.empty() ? "the file" : prefix_, text_of(node_)));
}

std::string ConfigSection::describe(const std::string& name) const {
  const std::string key = fmt::format("{}{}{}", prefix_, prefix_.empty() ? "" : ".", name);
  return source_.empty() ? key : fmt::format("recipe {}: {}", source_, key);
}

void ConfigSection::reject(const std::string& name, const std::string& found,
                           const std::string& expected) const {
  throw UsageError(fmt::format("{} is {}; expected {}", describe(name), found, expected));
}

bool ConfigSection::has(const std::string& name) const {
  const YAML::Node node = node_;  // operator[] on a const node does not insert
  return static_cast<bool>(node[name]);
}

template <typename T>
bool ConfigSection::read(const std::string& name, T& value, const char* expected) {
  known_.push_back(name);
  const YAML::Node& node = node_;
  const YAML::Node found = node[name];
  if (!found) return false;
  try {
    value = value_of<T>(found);
  } catch (const YAML::Exception&) {
    reject(name, text_of(found), expected);
  }
  return true;
}

void ConfigSection::key(const std::string& name, bool& value) {
  read(name, value, "true or false");
  resolved_[name] = value;
}

void ConfigSection::key(const std::string& name, int64_t& value, IntRange range) {
  read(name, value, "a whole number");
  if (value < range.low || value > range.high)
    reject(name, std::to_string(value), fmt::format("{} to {}", range.low, range.high));
  resolved_[name] = value;
}

void ConfigSection::key(const std::string& name, double& value, Range range) {
  read(name, value, "a number");
  if (!(value >= range.low && value <= range.high))
    reject(name, fmt::format("{}", value), fmt::format("{} to {}", range.low, range.high));
  resolved_[name] = fmt::format("{}", value);
}

void ConfigSection::key(const std::string& name, std::string& value) {
  read(name, value, "a text");
  resolved_[name] = value;
}

void ConfigSection::key(const std::string& name, std::string& value,
                        const std::vector<std::string>& allowed) {
  read(name, value, "a name");
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    reject(name, "\"" + value + "\"", fmt::format("one of {}", fmt::join(allowed, ", ")));
  resolved_[name] = value;
}

void ConfigSection::key(const std::string& name, std::vector<int64_t>& value, IntRange range) {
  read(name, value, "a list of whole numbers");
  for (const int64_t item : value)
    if (item < range.low || item > range.high)
      reject(name, fmt::format("[{}]", fmt::join(value, ", ")),
             fmt::format("numbers from {} to {}", range.low, range.high));
  resolved_[name] = value;
}

void ConfigSection::key(const std::string& name, std::vector<double>& value, Range range) {
  read(name, value, "a list of numbers");
  YAML::Node list(YAML::NodeType::Sequence);
  for (const double item : value) {
    if (!(item >= range.low && item <= range.high))
      reject(name, fmt::format("[{}]", fmt::join(value, ", ")),
             fmt::format("numbers from {} to {}", range.low, range.high));
    list.push_back(fmt::format("{}", item));
  }
  resolved_[name] = list;
}

void ConfigSection::key(const std::string& name, std::vector<std::string>& value) {
  read(name, value, "a list of names");
  resolved_[name] = value;
}

ConfigSection ConfigSection::section(const std::string& name) {
  known_.push_back(name);
  const YAML::Node& node = node_;
  const YAML::Node child = node[name];
  return ConfigSection(child ? child : YAML::Node(YAML::NodeType::Map), source_,
                       prefix_.empty() ? name : prefix_ + "." + name);
}

void ConfigSection::adopt(const std::string& name, const ConfigSection& child) {
  resolved_[name] = child.resolved();
}

void ConfigSection::finish() const {
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : text_of(entry.first);
    if (std::find(known_.begin(), known_.end(), name) == known_.end())
      throw UsageError(
          fmt::format("{} is not a known key{}", describe(name), suggestion(name, known_)));
    if (!seen.insert(name).second)
      throw UsageError(fmt::format("{} is given a second time", describe(name)));
  }
}

YAML::Node merge_yaml(const YAML::Node& base, const YAML::Node& over) {
  if (!base || !base.IsMap() || !over || !over.IsMap()) return YAML::Clone(over);
  YAML::Node merged = YAML::Clone(base);
  for (const auto& entry : over) {
    const auto name = entry.first.as<std::string>();
    const YAML::Node& read_only = base;
    merged[name] =
        read_only[name] ? merge_yaml(read_only[name], entry.second) : YAML::Clone(entry.second);
  }
  return merged;
}

namespace {

struct WrongKey {
  int line;  ///< from 1
  std::string problem;
};

// The first wrong key in a node: one that is not a name (but a list, a section or nothing), or one
// that its section has twice, of which reading would silently take one.
std::optional<WrongKey> wrong_key(const YAML::Node& node) {
  if (!node.IsMap() && !node.IsSequence()) return std::nullopt;
  std::set<std::string> names;
  for (const auto& entry : node) {
    if (node.IsMap()) {
      const YAML::Node& key = entry.first;
      const int line = key.Mark().line + 1;
      if (!key.IsScalar()) return WrongKey{line, text_of(key) + " is no name of a key"};
      if (!names.insert(key.Scalar()).second)
        return WrongKey{line, text_of(key) + " is given a second time"};
    }
    if (auto inner = wrong_key(node.IsMap() ? entry.second : YAML::Node(entry))) return inner;
  }
  return std::nullopt;
}

std::vector<std::string> included_files(const YAML::Node& include, const std::string& path) {
  std::vector<std::string> files;
  bool named = include.IsScalar() || include.IsSequence();
  if (include.IsScalar()) files.push_back(include.Scalar());
  if (include.IsSequence())
    for (const auto& file : include) {
      named = named && file.IsScalar();
      files.push_back(named ? file.Scalar() : "");
    }
  if (!named)
    throw UsageError(fmt::format("{}: include is {}; expected a file or a list of files", path,
                                 text_of(include)));
  return files;
}

// `files` counts those that were read for one recipe.
YAML::Node load_yaml(const std::string& path, const RenamedKeys& renamed, int depth, int& files) {
  namespace fs = std::filesystem;
  check(depth < 16, "{}: includes nest deeper than 16 files (a circle?)", path);
  check(++files <= 64, "{}: a recipe of more than 64 files", path);
  YAML::Node own;
  try {
    own = parse_yaml(read_file(path, kMostYamlBytes));
  } catch (const YAML::Exception& error) {
    throw UsageError(fmt::format("{}:{}: {}", path, error.mark.line + 1, error.msg));
  }
  if (!own || own.IsNull()) own = YAML::Node(YAML::NodeType::Map);
  if (!own.IsMap()) throw UsageError(fmt::format("{}: expected a file of keys and sections", path));
  if (const auto wrong = wrong_key(own))
    throw UsageError(fmt::format("{}:{}: {}", path, wrong->line, wrong->problem));
  rename_keys(own, renamed, path);
  YAML::Node merged(YAML::NodeType::Map);
  if (const YAML::Node includes = own["include"]) {
    for (const auto& file : included_files(includes, path))
      merged = merge_yaml(merged, load_yaml((fs::path(path).parent_path() / file).string(), renamed,
                                            depth + 1, files));
    own.remove("include");
  }
  return merge_yaml(merged, own);
}

}  // namespace

void rename_keys(YAML::Node& root, const RenamedKeys& renamed, const std::string& source) {
  for (const auto& [section, old_name, new_name] : renamed) {
    const YAML::Node& read_only = root;  // a lookup in a node that is not const adds the key
    const YAML::Node found = read_only[section];
    if (!found || !found.IsMap() || !found[old_name]) continue;
    if (found[new_name])
      throw UsageError(fmt::format("{}: {}.{} is the old name of {}.{}; expected only one of them",
                                   source, section, old_name, section, new_name));
    YAML::Node changed = found;
    changed[new_name] = YAML::Clone(found[old_name]);
    changed.remove(old_name);
  }
}

YAML::Node load_yaml_with_includes(const std::string& path, const RenamedKeys& renamed) {
  int files = 0;
  return load_yaml(path, renamed, 0, files);
}

void set_yaml_path(YAML::Node& root, const std::string& assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("--set {}: expected key=value", assignment));
  YAML::Node value;
  try {
    value = parse_yaml(assignment.substr(equals + 1));
  } catch (const YAML::Exception& error) {
    throw UsageError(fmt::format("--set {}: {}", assignment, error.msg));
  }
  if (const auto wrong = wrong_key(value))
    throw UsageError(fmt::format("--set {}: {}", assignment, wrong->problem));
  // Builds {a: {b: {c: value}}} from the inside out and merges it, so no alias can be shared.
  std::string path = assignment.substr(0, equals);
  while (true) {
    const auto dot = path.rfind('.');
    YAML::Node outer(YAML::NodeType::Map);
    outer[dot == std::string::npos ? path : path.substr(dot + 1)] = value;
    value = outer;
    if (dot == std::string::npos) break;
    path.resize(dot);
  }
  root = merge_yaml(root, value);
}

std::map<std::string, std::string> yaml_paths(const YAML::Node& root) {
  std::map<std::string, std::string> paths;
  for (const auto& item : root) {
    const auto key = item.first.as<std::string>();
    if (item.second.IsMap()) {
      for (const auto& [path, value] : yaml_paths(item.second)) paths[key + "." + path] = value;
      continue;
    }
    YAML::Emitter emitter;
    emitter.SetSeqFormat(YAML::Flow);
    emitter << item.second;
    paths[key] = emitter.c_str();
  }
  return paths;
}

}  // namespace remcaps
