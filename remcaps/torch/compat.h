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

/// Bytes free on a GPU, this process's cached but unused blocks included; 0 in a CPU build.
int64_t cuda_free_bytes(torch::Device device);

/// TF32 in the GPU's matrix products and convolutions.
void set_tf32(bool on);

/// Only deterministic algorithms (cuDNN's search off); an operation without one is an error. The
/// first call of a process also sets cuBLAS's workspaces: one that has computed on a GPU without
/// cannot become deterministic any more.
void set_deterministic(bool on);

/// out[i] = a[i] b[i], summed and written in float32 whatever the type of a and b. A libtorch
/// before 2.8 rounds bfloat16 products to their type first.
void products_in_float32(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor out);

/// Refuses a share of a GPU (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE below 100) to bfloat16: cuBLAS 13.0
/// leaves parts of its bfloat16 products unwritten there, and whatever lay in memory is the result.
void require_whole_gpu_for_bf16();

/// bfloat16 autocast on one device as long as it lives; does nothing where `on` is false. A GPU
/// has to be there as a whole.
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

/// Whether a GPU's float32 products may be made in tf32. Always false for a CPU.
bool tf32_is_on(torch::Device device);

/// Whether a GPU's operations are under autocast now. Always false for a CPU, whose bfloat16 is the
/// caller's affair.
bool cuda_autocast_is_on(torch::Device device);

/// Ends autocast on a GPU for as long as it lives: what lies inside stays float32.
class NoCudaAutocast {
 public:
  explicit NoCudaAutocast(torch::Device device);
  ~NoCudaAutocast();
  NoCudaAutocast(const NoCudaAutocast&) = delete;
  NoCudaAutocast& operator=(const NoCudaAutocast&) = delete;

  /// Whether there was anything to end.
  bool was_on() const { return was_on_; }

 private:
  bool was_on_;
};

}  // namespace remcaps
