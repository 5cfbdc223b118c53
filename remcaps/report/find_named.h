// Finding an item of a list by its name.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {

/// The item of that name. UsageError ("no figure saliancy; ...") suggests the nearest name.
template <typename Item>
const Item& find_named(const std::vector<Item>& items, const std::string& kind,
                       const std::string& name) {
  std::vector<std::string> names;
  for (const Item& item : items) {
    if (item.name == name) return item;
    names.push_back(item.name);
  }
  throw UsageError(fmt::format("no {} {}{}", kind, name, suggestion(name, names)));
}

}  // namespace remcaps
