// The one place that knows which libtorch it is built against: Debian's 1.13 (CPU) or a CUDA 2.x.
#pragma once

#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/version.h>

#include <string>
#include <vector>

namespace remcaps {

/// "NVIDIA H200, 139.7 GiB" for every visible GPU; empty in a CPU build.
std::vector<std::string> cuda_device_names();

/// Peak bytes the CUDA allocator has handed out since the last reset; 0 in a CPU build.
int64_t cuda_peak_bytes();
void cuda_reset_peak();

/// Free bytes of a GPU, with the blocks that this process has cached but does not use; 0 in a CPU
/// build.
int64_t cuda_free_bytes(torch::Device device);

/// TF32 in the GPU's matrix products and convolutions.
void set_tf32(bool on);

/// Only deterministic algorithms (cuDNN's search is off); an operation that has none is an error.
/// The first call in a process also sets cuBLAS's workspaces. Call it before anything is computed
/// on a GPU: later a process cannot become deterministic any more.
void set_deterministic(bool on);

/// out[i] = a[i] b[i], summed and written in float32 whatever the type of a and b. A libtorch
/// before 2.8 rounds bfloat16 products to their type first.
void products_in_float32(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor out);

/// Error if the process has only a share of a GPU (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE below 100):
/// cuBLAS 13.0 then leaves parts of its bfloat16 products unwritten, and the result is whatever was
/// in memory.
void require_whole_gpu_for_bf16();

/// bfloat16 autocast on one device for as long as the object lives; does nothing if `on` is false.
/// On a GPU require_whole_gpu_for_bf16() must hold.
class Autocast {
 public:
  Autocast(bool on, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  torch::DeviceType type_;
};

/// Whether a GPU may compute float32 products in tf32. Always false for a CPU.
bool tf32_is_on(torch::Device device);

/// Whether a GPU's operations are under autocast now. Always false for a CPU: its bfloat16 does not
/// go through autocast.
bool cuda_autocast_is_on(torch::Device device);

/// Whether a host program, such as Python, has switched the CPU's autocast on.
bool cpu_autocast_is_on();

/// Switches autocast off on a GPU for as long as the object lives: computation stays float32.
class NoCudaAutocast {
 public:
  explicit NoCudaAutocast(torch::Device device);
  ~NoCudaAutocast();
  NoCudaAutocast(const NoCudaAutocast&) = delete;
  NoCudaAutocast& operator=(const NoCudaAutocast&) = delete;

  /// Whether autocast was on before.
  bool was_on() const { return was_on_; }

 private:
  bool was_on_;
};

}  // namespace remcaps
