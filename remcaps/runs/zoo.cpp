#include "remcaps/runs/zoo.h"

#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/recipe/resources.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "zoo:", kSuffix = ".safetensors";

}  // namespace

bool is_zoo_name(const std::string& run) {
  return run.starts_with(kPrefix);
}

fs::path find_in_zoo(const std::string& run) {
  const std::string name = run.substr(kPrefix.size());
  for (const fs::path& folder : resource_folders("models")) {
    fs::path path = folder / (name + std::string(kSuffix));
    std::error_code error;
    if (fs::is_regular_file(path, error)) return path;
  }
  const std::vector<std::string> names = zoo_names();
  throw UsageError(fmt::format("no network {}{}{}", kPrefix, name,
                               names.empty()
                                   ? "; this program has none ($REMCAPS_MODELS names their folder)"
                                   : suggestion(name, names)));
}

std::optional<std::string> zoo_name_of(const fs::path& file) {
  if (file.extension() != kSuffix) return std::nullopt;
  for (const fs::path& folder : resource_folders("models")) {
    std::error_code error;
    const fs::path relative = fs::relative(file, folder, error);
    if (!error && !relative.empty() && *relative.begin() != "..")
      return std::string(kPrefix) + fs::path(relative).replace_extension().generic_string();
  }
  return std::nullopt;
}

std::vector<std::string> zoo_names() {
  std::set<std::string> names;
  for (const fs::path& folder : resource_folders("models")) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error))
      if (it->path().extension() == kSuffix)
        names.insert(it->path().lexically_relative(folder).replace_extension().generic_string());
  }
  return {names.begin(), names.end()};
}

}  // namespace remcaps
