#include "remcaps/evaluation/memory.h"

#include <fstream>
#include <limits>
#include <sstream>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

// Nothing for a missing file and for "max" (no limit).
std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> machine_available() {
  const auto kibibytes = read_field("/proc/meminfo", "MemAvailable:");
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

int64_t host_available() {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  const int64_t available = std::min(machine_available().value_or(kAny),
                                     group_available("/sys/fs/cgroup").value_or(kAny));
  return available == kAny ? 0 : std::max<int64_t>(available, 1);
}

}  // namespace

std::optional<int64_t> read_field(const std::filesystem::path& file, const std::string& field) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (words >> name >> value && name == field) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> group_available(const std::filesystem::path& group) {
  const auto limit = read_number(group / "memory.max");
  const auto used = read_number(group / "memory.current");
  if (!limit || !used) return std::nullopt;
  const std::filesystem::path stat = group / "memory.stat";
  const int64_t cached =
      read_field(stat, "active_file").value_or(0) + read_field(stat, "inactive_file").value_or(0);
  return *limit - *used + cached;
}

MemoryEstimate estimate_memory(const CapsNet& model, int64_t batch) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  MemoryEstimate estimate;
  for (const auto& parameter : model.parameters()) {
    estimate.weights += parameter.numel() * kFloat;
    if (parameter.requires_grad()) estimate.optimiser += 3 * parameter.numel() * kFloat;
  }
  for (const auto& layer : model.costs()) {
    estimate.activations += layer.activation_floats * batch * kFloat;
    const int64_t votes = layer.vote_floats * batch * kFloat;
    estimate.votes += votes;
    if (votes > estimate.largest_votes) {
      estimate.largest_votes = votes;
      estimate.largest_layer = layer.name;
    }
  }
  return estimate;
}

int64_t available_memory(torch::Device device) {
  return device.is_cuda() ? cuda_free_bytes(device) : host_available();
}

std::string check_memory(const CapsNet& model, const Recipe& recipe, torch::Device device) {
  const MemoryEstimate estimate = estimate_memory(model, recipe.train.batch);
  const int64_t available = available_memory(device);
  const bool fused = recipe.kernels == "fused";
  if (available == 0 || estimate.plain() <= available) return "";
  const std::string message = fmt::format(
      "{} at train.batch {} needs {}, {} of them for votes (most in layer {}); {} are free on {}",
      model.name(), recipe.train.batch, human_bytes(static_cast<double>(estimate.plain())),
      human_bytes(static_cast<double>(estimate.votes)), estimate.largest_layer,
      human_bytes(static_cast<double>(available)), device.str());
  check(fused && estimate.fused() <= available, "{}; choose a smaller train.batch{}", message,
        fused ? "" : " or kernels: fused");
  return message + "; it fits only if fused kernels keep no votes";
}

}  // namespace remcaps
