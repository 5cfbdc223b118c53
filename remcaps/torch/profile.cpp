#include "remcaps/torch/profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Beside the file. If `path` is a link, beside the file it leads to.
fs::path unfinished(const fs::path& path) {
  return fs::weakly_canonical(path).string() + ".tmp";
}

// Whether a trace of `work` is in unfinished(path) now. The profiler does not always tell.
bool save_profile(const fs::path& path, const std::set<ActivityType>& activities,
                  const std::function<void()>& work) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  profiler::disableProfiler()->save(unfinished(path).string());
  std::error_code ignored;
  return fs::is_regular_file(unfinished(path), ignored) &&
         fs::file_size(unfinished(path), ignored) > 0;
}

}  // namespace

void prepare_profile(const fs::path& path) {
  prepare_output(path);
  if (fs::exists(path) && !fs::is_regular_file(path))
    throw UsageError(fmt::format("{}: a trace needs a plain file", path.string()));
  bool written = false;
  try {
    written = save_profile(path, {ActivityType::CPU}, [] {});
  } catch (const c10::Error&) {
    // A libtorch without Kineto reports that only here.
  }
  std::error_code ignored;
  fs::remove(unfinished(path), ignored);
  if (!written)
    throw UsageError(
        fmt::format("{}: no trace can be written; this libtorch ({}) was built without its "
                    "profiler (Kineto)",
                    path.string(), TORCH_VERSION));
}

void write_profile(const fs::path& path, torch::Device device, const std::function<void()>& work) {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  const bool written = save_profile(path, activities, [&] {
    work();
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  });
  std::error_code error;
  if (written) fs::rename(unfinished(path), fs::weakly_canonical(path), error);
  check(written && !error, "{}: the trace cannot be written", path.string());
}

}  // namespace remcaps
