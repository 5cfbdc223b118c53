#include "remcaps/runs/run_folder.h"

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/runs/zoo.h"

namespace remcaps {
namespace fs = std::filesystem;

RunFolder RunFolder::open(const fs::path& path) {
  RunFolder folder(path);
  std::error_code error;
  check(!is_zoo_name(path.string()), "{}: a network of the zoo has no run folder; expected a run's",
        path.string());
  check(!fs::is_regular_file(path, error), "{}: a file; expected a run's folder", path.string());
  check(fs::is_directory(path, error), "{}: no such run folder", path.string());
  check(fs::is_regular_file(folder.recipe(), error), "{}: not a run folder (it has no recipe.yaml)",
        path.string());
  return folder;
}

RunFolder RunFolder::create(const fs::path& parent, int64_t seed) {
  make_folder(parent);
  for (int64_t k = 1;; ++k) {
    const fs::path path = name(parent, seed, k);
    std::error_code error;
    // If two programs try at once, only one of them creates the folder.
    if (fs::create_directory(path, error)) return RunFolder(path);
    check(!error || fs::exists(path), "{}: cannot create the run folder: {}", path.string(),
          error.message());
  }
}

fs::path RunFolder::name(const fs::path& parent, int64_t seed, int64_t k) {
  return parent / (k == 1 ? fmt::format("seed-{}", seed) : fmt::format("seed-{}-{}", seed, k));
}

fs::path RunFolder::epoch(int64_t epoch) const {
  return path_ / fmt::format("epoch-{:04}.safetensors", epoch);
}

void RunFolder::remove_leftovers() const {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (name.starts_with(".remcaps-") && name.ends_with(".tmp")) fs::remove(entry, ignored);
  }
}

Recipe read_run_recipe(const RunFolder& folder) {
  std::string name = folder.path().string();
  try {
    if (fs::exists(folder.info()))
      name = nlohmann::json::parse(read_file(folder.info())).value("recipe", name);
    return parse_stored_recipe(parse_yaml(read_file(folder.recipe())), name);
  } catch (const nlohmann::json::exception&) {
    fail("{}: not valid JSON", folder.info().string());
  } catch (const YAML::Exception& error) {
    fail("{}: not valid YAML: {}", folder.recipe().string(), error.msg);
  }
}

fs::path folder_of_recipe(const Recipe& recipe) {
  return fs::path(recipe.dataset.name) / fs::path(recipe.name).filename();
}

fs::path default_runs_folder(const Recipe& recipe) {
  return "runs" / folder_of_recipe(recipe);
}

namespace {

FileLock lock_of(const RunFolder& folder) {
  auto lock = FileLock::take(folder.lock());
  check(lock.has_value(), "{}: another process is training this run", folder.path().string());
  return std::move(*lock);
}

}  // namespace

RunLock::RunLock(const RunFolder& folder) : lock_(lock_of(folder)) {}

}  // namespace remcaps
