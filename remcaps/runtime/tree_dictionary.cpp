#include "remcaps/runtime/tree_dictionary.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "remcaps/base/error.h"
#include "remcaps/parse_tree/keys.h"
#include "remcaps/tensors/safetensors.h"

namespace remcaps::runtime {
namespace {

constexpr int64_t kMostImages = int64_t{1} << 40;

template <typename T>
std::vector<T> values_of(const SafetensorsFile& file, const std::string& name, ElementType type) {
  const TensorView& tensor = file.tensor(name);
  check(tensor.type == type, "{}: {} is {}; expected {}", file.source(), name,
        type_name(tensor.type), type_name(type));
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

Quantizer quantizer_of(const Network& network) {
  const int64_t levels = network.routing_layers().back().levels;
  check(levels > 0, "{}: its couplings are not quantized, so that it has no parse trees",
        network.graph().network);
  return Quantizer::of_form(network.graph().level_form, levels);
}

}  // namespace

struct TreeDictionary::Trees {
  struct OfClass {
    std::unordered_map<KeyHash, int64_t> counts;
    std::vector<int64_t> sorted;  ///< the counts, the largest first
    int64_t images = 0;
  };
  std::vector<OfClass> classes;
};

TreeDictionary::TreeDictionary(const std::string& path, const Network& network)
    : trees_(std::make_unique<Trees>()) {
  const SafetensorsFile file(path);
  const Quantizer quantizer = quantizer_of(network);
  const auto keys = values_of<uint8_t>(file, "keys", ElementType::kUInt8);
  const auto counts = values_of<int64_t>(file, "counts", ElementType::kInt64);
  const auto classes = values_of<int64_t>(file, "classes", ElementType::kInt64);
  const auto children = static_cast<size_t>(network.routing_layers().back().children);
  check(values_of<float>(file, "levels", ElementType::kFloat32) == quantizer.centres() &&
            keys.size() == counts.size() * children && classes.size() == counts.size(),
        "{}: its parse trees are not those of this network, of {} capsules and {} levels", path,
        children, quantizer.levels());
  trees_->classes.resize(static_cast<size_t>(network.classes()));
  const auto length = key_length(static_cast<int64_t>(children), quantizer.levels());
  std::vector<float> couplings(children);
  std::vector<uint8_t> key(static_cast<size_t>(length));
  for (size_t tree = 0; tree < counts.size(); ++tree) {
    check(classes[tree] >= 0 && classes[tree] < network.classes() && counts[tree] > 0 &&
              counts[tree] < kMostImages,
          "{}: tree {} has class {} and {} images", path, tree, classes[tree], counts[tree]);
    for (size_t i = 0; i < children; ++i) {
      const uint8_t level = keys[tree * children + i];
      check(level < quantizer.levels(), "{}: tree {} has level {} of {}", path, tree, level,
            quantizer.levels());
      couplings[i] = quantizer.centres()[level];
    }
    encode_key(couplings, quantizer, key);
    Trees::OfClass& of = trees_->classes[static_cast<size_t>(classes[tree])];
    const bool is_new =
        of.counts
            .emplace(hash_key({reinterpret_cast<const char*>(key.data()), key.size()}),
                     counts[tree])
            .second;
    check(is_new, "{}: tree {} is there twice", path, tree);
    of.sorted.push_back(counts[tree]);
    of.images += counts[tree];
  }
  for (Trees::OfClass& of : trees_->classes)
    std::sort(of.sorted.begin(), of.sorted.end(), std::greater<>());
}

TreeDictionary::~TreeDictionary() = default;
TreeDictionary::TreeDictionary(TreeDictionary&&) noexcept = default;
TreeDictionary& TreeDictionary::operator=(TreeDictionary&&) noexcept = default;

TreePlace TreeDictionary::find(int64_t class_index, const std::string& key) const {
  check(class_index >= 0 && class_index < static_cast<int64_t>(trees_->classes.size()),
        "class {}; the dictionary has {}", class_index, trees_->classes.size());
  const Trees::OfClass& of = trees_->classes[static_cast<size_t>(class_index)];
  TreePlace place{.class_images = of.images, .class_trees = static_cast<int64_t>(of.sorted.size())};
  const auto found = of.counts.find(hash_key(key));
  if (found == of.counts.end()) return place;
  place.images = found->second;
  place.rank =
      1 + (std::lower_bound(of.sorted.begin(), of.sorted.end(), place.images, std::greater<>()) -
           of.sorted.begin());
  return place;
}

}  // namespace remcaps::runtime
