#include "remcaps/training/launch.h"

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace fs = std::filesystem;
using nlohmann::json;

std::vector<int64_t> parse_seeds(const std::string& text) {
  constexpr int64_t kMost = 1000;
  const auto ranges = parse_ranges(text);
  if (!ranges) throw UsageError(fmt::format("--seeds {}: expected 42..46 or 42,43,44", text));
  std::vector<int64_t> seeds;
  for (const NumberRange& range : *ranges) {
    if (range.last - range.first >= kMost - static_cast<int64_t>(seeds.size()))
      throw UsageError(fmt::format("--seeds {}: expected at most {} seeds", text, kMost));
    for (int64_t seed = range.first; seed <= range.last; ++seed) seeds.push_back(seed);
  }
  return seeds;
}

std::unique_ptr<Trainer> start_run(const Recipe& recipe, const DataSplits& data,
                                   const fs::path& parent, const fs::path& data_root,
                                   torch::Device device, ProcessGroup* group) {
  if (group != nullptr && group->rank() > 0)
    return std::make_unique<Trainer>(recipe, data, RunFolder::open(group->broadcast_text("")),
                                     device, group);
  const RunFolder folder = RunFolder::create(parent, recipe.train.seed);
  try {
    const json info = {{"recipe", recipe.name},
                       {"data", fs::absolute(data_root).string()},
                       {"device", device.str()},
                       {"remcaps", kVersion},
                       {"torch", TORCH_VERSION}};
    write_atomically(folder.info(), json_text(info, 2) + "\n");
    write_atomically(folder.recipe(), recipe.to_text());
    if (group != nullptr) group->broadcast_text(fs::absolute(folder.path()).string());
    return std::make_unique<Trainer>(recipe, data, folder, device, group);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder.path(), ignored);
    throw;
  }
}

}  // namespace remcaps
