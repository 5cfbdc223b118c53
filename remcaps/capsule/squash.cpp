#include "remcaps/capsule/squash.h"

namespace remcaps {

Tensor squash(const Tensor& preactivation, at::IntArrayRef dims, double epsilon) {
  const Tensor n2 = preactivation.square().sum(dims, /*keepdim=*/true);
  return preactivation * (n2 / ((1 + n2) * torch::sqrt(n2 + epsilon)));
}

Tensor squash_exponential(const Tensor& preactivation, at::IntArrayRef dims, double epsilon) {
  const Tensor n = torch::sqrt(preactivation.square().sum(dims, /*keepdim=*/true) + epsilon);
  return preactivation * (-torch::expm1(-n) / n);
}

Tensor safe_norm(const Tensor& poses, int64_t dim, double epsilon) {
  if (epsilon == 0.0) return poses.norm(2, dim);
  return torch::sqrt(poses.square().sum(dim) + epsilon);
}

Tensor Squash::operator()(const Tensor& preactivation, at::IntArrayRef dims) const {
  return form == Form::kNorm ? squash(preactivation, dims, epsilon)
                             : squash_exponential(preactivation, dims, epsilon);
}

}  // namespace remcaps
