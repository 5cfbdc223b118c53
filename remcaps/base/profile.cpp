#include "remcaps/base/profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include "remcaps/base/error.h"

namespace remcaps {

void write_profile(const std::filesystem::path& path, torch::Device device,
                   const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);

  check(!std::filesystem::is_directory(path), "{}: is a folder; expected a file for the trace",
        path.string());
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
  profiler::disableProfiler()->save(path.string());
  // It reports neither its own absence nor a folder it cannot write to.
  check(std::filesystem::is_regular_file(path, ignored) &&
            std::filesystem::file_size(path, ignored) > 0,
        "{}: no trace was written; the folder cannot be written to, or this libtorch was built "
        "without its profiler",
        path.string());
}

}  // namespace remcaps
