// Small formulas that the CPU loops and the CUDA kernels share.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define REMCAPS_HOST_DEVICE __host__ __device__
#else
#define REMCAPS_HOST_DEVICE
#endif

namespace remcaps::kernels {

/// squash(s) = squash_factor(||s||^2) s
REMCAPS_HOST_DEVICE inline float squash_factor(float n2, float epsilon) {
  return n2 / ((1.0F + n2) * std::sqrt(n2 + epsilon));
}

/// Sabour et al.'s squash, or Efficient-CapsNet's: (1 - exp(-n)) s / n with n^2 = ||s||^2 + epsilon.
enum class SquashForm { kNorm, kExponential };
inline float squash_factor(SquashForm form, float n2, float epsilon) {
  if (form == SquashForm::kNorm) return squash_factor(n2, epsilon);
  const float n = std::sqrt(n2 + epsilon);
  return -std::expm1(-n) / n;
}

/// Twice the derivative of squash_factor:
/// dL/ds = squash_factor dL/dv + squash_twice_slope (dL/dv . s) s.
REMCAPS_HOST_DEVICE inline float squash_twice_slope(float n2, float epsilon) {
  const float length2 = n2 + epsilon, root = std::sqrt(length2), one_more = 1.0F + n2;
  return 2.0F / (one_more * one_more * root) - n2 / (one_more * length2 * root);
}

/// Both of them from one root and one division each, for maps whose time is spent on arithmetic.
struct SquashSlopes {
  float factor, twice_slope;
};
REMCAPS_HOST_DEVICE inline SquashSlopes squash_slopes(float n2, float epsilon) {
#ifdef __CUDA_ARCH__
  const float inverse_root = rsqrtf(n2 + epsilon);
#else
  const float inverse_root = 1.0F / std::sqrt(n2 + epsilon);
#endif
  const float inverse_more = 1.0F / (1.0F + n2), both = inverse_more * inverse_root;
  return {n2 * both, both * (2.0F * inverse_more - n2 * inverse_root * inverse_root)};
}

/// The factor by which scaled-distance routing shortens a vote to the length of its child, from
/// their squared lengths. 1 if the vote is not longer.
REMCAPS_HOST_DEVICE inline float clamp_factor(float vote2, float child2) {
  return vote2 > child2 ? std::sqrt(child2 / vote2) : 1.0F;
}

/// The scale t of the logits t d. It gives a vote at half the mean distance 0.9 of the coupling.
/// `log_odds` is log(9 (J - 1)), or 0 for a single parent.
REMCAPS_HOST_DEVICE inline float distance_scale(float mean_distance, float log_odds) {
  return log_odds / (1e-12F - 0.5F * mean_distance);
}

/// The derivative of distance_scale with respect to the mean distance, from the scale itself.
REMCAPS_HOST_DEVICE inline float distance_scale_slope(float scale, float log_odds) {
  return log_odds > 0 ? 0.5F * scale * scale / log_odds : 0.0F;
}

/// e = (t dL/db + m) / d. The gradient of the distance d between a pose v and a vote u is
/// dL/dv = e (v - u) and dL/du = e (u - v). `grad_logit` is dL/db of the logit b = t d, and
/// `grad_mean` the share m of this distance in the gradient of the mean distance. A distance of 0
/// has the gradient 0, as in torch.
REMCAPS_HOST_DEVICE inline float distance_pull(float scale, float grad_logit, float grad_mean,
                                               float distance) {
  return distance > 0 ? (scale * grad_logit + grad_mean) / distance : 0.0F;
}

struct Margins {
  float plus = 0.9F;    ///< the true class should be at least this long
  float minus = 0.1F;   ///< the others at most this long
  float lambda = 0.5F;  ///< weight of the others
};

/// One class's share of an image's margin loss, and its derivative with respect to the activation.
REMCAPS_HOST_DEVICE inline float margin_term(float activation, bool is_true, const Margins& m,
                                             float* derivative) {
  const float miss = is_true ? m.plus - activation : activation - m.minus;
  if (!(miss > 0)) {
    *derivative = miss == miss ? 0.0F : miss;  // NaN stays NaN
    return *derivative;
  }
  const float scale = is_true ? 1.0F : m.lambda;
  *derivative = (is_true ? -2.0F : 2.0F) * scale * miss;
  return scale * miss * miss;
}

/// Adam's constants. The complements are stored too, since 1 - 0.999F is off by 1e-5.
struct AdamConstants {
  float beta1 = 0.9F, one_minus_beta1 = 0.1F;
  float beta2 = 0.999F, one_minus_beta2 = 0.001F;
  float epsilon = 1e-8F;
};
/// The numbers that change from step to step.
struct StepNumbers {
  float step_size = 0;          ///< lr / (1 - beta1^t)
  float second_correction = 1;  ///< sqrt(1 - beta2^t)
  float lambda = 0;             ///< LOBSTER's share of an insensitive parameter
};

/// LOBSTER's shrinking, p <- p - lambda p max(0, 1 - |g|), then Adam's moments and step.
REMCAPS_HOST_DEVICE inline void update_parameter(const AdamConstants& adam, const StepNumbers& step,
                                                 float g, float& p, float& m, float& v) {
  const float insensitivity = 1.0F - std::fabs(g);
  p -= step.lambda * ((insensitivity > 0 ? insensitivity : 0.0F) * p);
  m = adam.beta1 * m + adam.one_minus_beta1 * g;
  v = adam.beta2 * v + adam.one_minus_beta2 * (g * g);
  p -= step.step_size * (m / (std::sqrt(v) / step.second_correction + adam.epsilon));
}

}  // namespace remcaps::kernels
