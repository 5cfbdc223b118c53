#include "remcaps/torch/compat.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <cstdlib>

#include "remcaps/base/error.h"

#if defined(REMCAPS_CUDA)
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

namespace remcaps {

std::vector<std::string> cuda_device_names() {
  std::vector<std::string> names;
#if defined(REMCAPS_CUDA)
  for (int64_t i = 0; i < static_cast<int64_t>(torch::cuda::device_count()); ++i) {
    const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(i));
    names.push_back(fmt::format("{}, {:.1f} GiB", properties->name,
                                static_cast<double>(properties->totalGlobalMem) / (1 << 30)));
  }
#else
  for (int64_t i = 0; i < static_cast<int64_t>(torch::cuda::device_count()); ++i)
    names.push_back(fmt::format("cuda:{}", i));
#endif
  return names;
}

int64_t cuda_peak_bytes() {
#if defined(REMCAPS_CUDA)
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(at::cuda::current_device());
  return stats.allocated_bytes[0].peak;
#else
  return 0;
#endif
}

void cuda_reset_peak() {
#if defined(REMCAPS_CUDA)
  c10::cuda::CUDACachingAllocator::resetPeakStats(at::cuda::current_device());
#endif
}

int64_t cuda_free_bytes([[maybe_unused]] torch::Device device) {
#if defined(REMCAPS_CUDA)
  const c10::cuda::CUDAGuard guard(device);
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(guard.current_device().index());
  return static_cast<int64_t>(free) + stats.reserved_bytes[0].current -
         stats.allocated_bytes[0].current;
#else
  return 0;
#endif
}

void set_tf32(bool on) {
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
}

void set_deterministic(bool on) {
  // cuBLAS reads these when it first computes. Deterministic products need the first setting;
  // without it libtorch refuses them. The other settings save memory: libtorch would keep 32 MiB
  // each for cuBLAS and cuBLASLt, more than a capsule network's products use.
  if (on) {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  } else {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8", /*overwrite=*/0);
    setenv("CUBLASLT_WORKSPACE_SIZE", "8192", /*overwrite=*/0);  // KiB
  }
  at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(on);
  at::globalContext().setBenchmarkCuDNN(!on);
}

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
void use_bfloat16(torch::DeviceType type) {
  at::autocast::set_autocast_dtype(type, at::kBFloat16);
}
void switch_autocast(torch::DeviceType type, bool on) {
  at::autocast::set_autocast_enabled(type, on);
}
bool autocast_enabled(torch::DeviceType type) {
  return at::autocast::is_autocast_enabled(type);
}
#else
void use_bfloat16(torch::DeviceType) {
  at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
  at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
}
void switch_autocast(torch::DeviceType type, bool on) {
  type == torch::kCUDA ? at::autocast::set_enabled(on) : at::autocast::set_cpu_enabled(on);
}
bool autocast_enabled(torch::DeviceType type) {
  return type == torch::kCUDA ? at::autocast::is_enabled() : at::autocast::is_cpu_enabled();
}
#endif

}  // namespace

bool tf32_is_on(torch::Device device) {
  return device.is_cuda() && at::globalContext().allowTF32CuBLAS();
}

bool cuda_autocast_is_on(torch::Device device) {
  return device.is_cuda() && autocast_enabled(torch::kCUDA);
}

bool cpu_autocast_is_on() {
  return autocast_enabled(torch::kCPU);
}

NoCudaAutocast::NoCudaAutocast(torch::Device device) : was_on_(cuda_autocast_is_on(device)) {
  if (was_on_) switch_autocast(torch::kCUDA, false);
}

NoCudaAutocast::~NoCudaAutocast() {
  if (was_on_) switch_autocast(torch::kCUDA, true);
}

void products_in_float32(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor out) {
  if (a.scalar_type() == torch::kFloat32) {
    at::bmm_out(out, a, b);
    return;
  }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (a.is_cuda()) {
    at::bmm_out(out, a, b, torch::kFloat32);
    return;
  }
#endif
  out.copy_(at::bmm(a, b));
}

void require_whole_gpu_for_bf16() {
  const char* share = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (share == nullptr || *share == '\0') return;
  check(
      std::atof(share) >= 100,
      "precision bf16 on {} % of a GPU (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE): cuBLAS leaves parts of "
      "its bfloat16 products unwritten there; unset it, or take tf32",
      share);
}

Autocast::Autocast(bool on, torch::Device device) : on_(on), type_(device.type()) {
  if (!on_) return;
  if (device.is_cuda()) require_whole_gpu_for_bf16();
  at::autocast::increment_nesting();
  use_bfloat16(type_);
  switch_autocast(type_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  switch_autocast(type_, false);
  // The cache holds the weights' bfloat16 copies, which the next step makes stale.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace remcaps
