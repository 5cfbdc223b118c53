#include "remcaps/tensors/tensor_view.h"

#include <algorithm>
#include <array>

namespace remcaps {
namespace {

struct TypeFacts {
  std::string_view name;
  size_t bytes;
};

// In the order of ElementType.
constexpr std::array<TypeFacts, 10> kTypes = {{{"F64", 8},
                                               {"F32", 4},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"I64", 8},
                                               {"I32", 4},
                                               {"I16", 2},
                                               {"I8", 1},
                                               {"U8", 1},
                                               {"BOOL", 1}}};

}  // namespace

size_t element_size(ElementType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

std::string_view type_name(ElementType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::optional<ElementType> parse_type(std::string_view name) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const TypeFacts& facts) { return facts.name == name; });
  if (found == kTypes.end()) return std::nullopt;
  return static_cast<ElementType>(found - kTypes.begin());
}

}  // namespace remcaps
