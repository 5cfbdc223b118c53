#include "remcaps/recipe/resources.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace remcaps {
namespace fs = std::filesystem;

namespace {

fs::path program_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

// The checkout, if the program is in its build/<preset>.
fs::path checkout_of(const fs::path& program_folder) {
  const fs::path checkout = program_folder.parent_path().parent_path();
  std::error_code error;
  return fs::exists(checkout / "CMakePresets.json", error) ? checkout : fs::path();
}

std::vector<fs::path>& added_prefixes() {
  static std::vector<fs::path> prefixes;
  return prefixes;
}

}  // namespace

bool add_resource_prefix(const fs::path& prefix) {
  added_prefixes().push_back(prefix);
  return true;
}

std::vector<fs::path> resource_folders(const std::string& kind) {
  std::string variable = "REMCAPS_" + kind;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::vector<fs::path> folders;
  if (const char* given = std::getenv(variable.c_str()); given != nullptr && *given != '\0')
    folders.emplace_back(given);
  folders.emplace_back(kind);
  const fs::path program = program_folder();
  if (const fs::path checkout = checkout_of(program); !checkout.empty())
    folders.push_back(checkout / kind);
  folders.push_back(program.parent_path() / "share" / "remcaps" / kind);
  for (const fs::path& prefix : added_prefixes())
    folders.push_back(prefix / "share" / "remcaps" / kind);
  return folders;
}

}  // namespace remcaps
