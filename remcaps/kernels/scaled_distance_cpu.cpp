#include "remcaps/kernels/scaled_distance_cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "remcaps/kernels/host_device.h"
#include "remcaps/kernels/routing_cpu.h"
#include "remcaps/kernels/scaled_distance_lanes.h"

namespace remcaps::kernels::cpu {
namespace {

// The saved floats, all of the last iteration: sums [groups, J, D_out, L], then the couplings
// [groups, I, J, L] where it is not also the first.
int64_t kept_sums_floats(const Cut& cut) {
  return cut.groups * cut.pose_floats;
}

int64_t kept_floats(const Cut& cut, const RoutingRule& rule) {
  return kept_sums_floats(cut) + (rule.iterations > 1 ? cut.groups * cut.coupling_floats : 0);
}

// The logits' t of each image, [groups, L], out of the sums of its distances over each chunk,
// [chunks, groups, L].
void distance_scales(const Problem& problem, Agreement agreement, const float* totals,
                     float* scales) {
  const RoutingShape& shape = problem.shape;
  const int64_t images = problem.cut.groups * problem.cut.lanes;
  // One parent takes all whatever its distance.
  const auto parents = static_cast<double>(shape.parents);
  const auto log_odds = static_cast<float>(shape.parents > 1 ? std::log(9.0 * (parents - 1)) : 0.0);
  const double pairs = static_cast<double>(shape.children) * parents;
  std::vector<double> of_image(images, 0.0);
  for (int64_t chunk = 0; chunk < problem.cut.chunks; ++chunk)
    for (int64_t image = 0; image < images; ++image)
      of_image[image] += totals[chunk * images + image];
  if (agreement == Agreement::kBatchDistance) {
    double of_batch = 0;  // without the lanes beyond the batch
    for (int64_t image = 0; image < shape.batch; ++image) of_batch += of_image[image];
    std::fill(of_image.begin(), of_image.end(), of_batch / static_cast<double>(shape.batch));
  }
  for (int64_t image = 0; image < images; ++image)
    scales[image] = distance_scale(static_cast<float>(of_image[image] / pairs), log_odds);
}

}  // namespace

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  return kept_floats(Cut(shape), rule);
}

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const int64_t last = rule.iterations - 1, pose_floats = cut.groups * cut.pose_floats;
  const int64_t scratch_floats = distance_scratch_floats(shape);
  const Buffer partial(cut.chunks * pose_floats);  // [chunks, groups, J, D_out, L]
  const Buffer packed_poses(pose_floats);          // v_j
  const Buffer totals(cut.chunks * cut.groups * cut.lanes), scales(cut.groups * cut.lanes);
  Buffer not_saved;
  if (saved == nullptr) not_saved = Buffer(kept_floats(cut, rule));
  float* sums = saved == nullptr ? not_saved.get() : saved;
  float* packed_couplings = sums + kept_sums_floats(cut);  // each iteration's distances at first

  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    // The mean distance lies between distances and couplings: every image waits for all others, and
    // votes are made twice in an iteration.
    if (iteration > 0) {
      for_each_chunk(cut, scratch_floats, [&](int64_t chunk, float* scratch) {
        for (int64_t group = 0; group < cut.groups; ++group)
          measure_distances(problem.range(chunk, group),
                            packed_poses.get() + group * cut.pose_floats,
                            packed_couplings + group * cut.coupling_floats,
                            totals.get() + (chunk * cut.groups + group) * cut.lanes, scratch);
      });
      distance_scales(problem, rule.agreement, totals.get(), scales.get());
    }
    for_each_chunk(cut, scratch_floats, [&](int64_t chunk, float* scratch) {
      for (int64_t group = 0; group < cut.groups; ++group) {
        DistanceCouplings step;
        if (iteration > 0)
          step = {.couplings = packed_couplings + group * cut.coupling_floats,
                  .scales = scales.get() + group * cut.lanes,
                  .levels = iteration == last ? rule.levels : CouplingLevels{}};
        sum_clamped_votes(problem.range(chunk, group), step,
                          partial.get() + (chunk * cut.groups + group) * cut.pose_floats, scratch);
      }
    });
    squash_partial(problem, rule, iteration, bias, partial.get(), sums, packed_poses.get());
  }

  unpack(cut, shape.batch, shape.pose_size(), packed_poses.get(), poses);
  if (couplings != nullptr)
    give_couplings(problem, rule, last == 0 ? nullptr : packed_couplings, couplings);
}

void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const Buffer packed(cut.groups * cut.pose_floats), grad_sums(cut.groups * cut.pose_floats);
  pack(cut, shape.batch, shape.pose_size(), grad_poses, packed.get());
  squash_gradients(problem, rule, saved, packed.get(), grad_sums.get());
  if (gradients.bias != nullptr) {
    std::fill_n(gradients.bias, shape.pose_size(), 0.0F);
    add_bias_gradient(problem, grad_sums.get(), gradients.bias);
  }
  if (gradients.children == nullptr && gradients.weight == nullptr) return;

  const Buffer grad_children(cut.groups * cut.child_floats);
  const ClampedGradientStep step{
      .from = {.groups = cut.groups,
               .children_stride = cut.child_floats,
               .grad_sums = grad_sums.get(),
               .sums_stride = cut.pose_floats,
               .couplings = rule.iterations > 1 ? saved + kept_sums_floats(cut) : nullptr,
               .couplings_stride = cut.coupling_floats,
               .uniform = rule.first_coupling},
      .grad_children = grad_children.get(),
      .grad_weight = gradients.weight};
  for_each_chunk(cut, clamped_gradient_scratch_floats(shape, cut.groups),
                 [&](int64_t chunk, float* scratch) {
                   clamped_gradient(problem.range(chunk, 0), step, scratch);
                 });
  if (gradients.children != nullptr)
    unpack(cut, shape.batch, shape.children * shape.child_dim, grad_children.get(),
           gradients.children);
}

}  // namespace remcaps::kernels::cpu
