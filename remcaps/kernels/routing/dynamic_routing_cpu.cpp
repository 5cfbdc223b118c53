#include "remcaps/kernels/routing/dynamic_routing.h"

#include <algorithm>

namespace remcaps::kernels::cpu {
namespace {

// The saved floats are
//   sums       [iterations, groups, J, D_out, L]
//   couplings  [iterations - 1, groups, I, J, L], of all iterations after the first
int64_t sums_offset(const Cut& cut, int64_t iteration) {
  return iteration * cut.groups * cut.pose_floats;
}

int64_t couplings_offset(const Cut& cut, const RoutingRule& rule, int64_t iteration) {
  return sums_offset(cut, rule.iterations) + (iteration - 1) * cut.groups * cut.coupling_floats;
}

void add_to(float* to, const float* from, int64_t count) {
  for (int64_t x = 0; x < count; ++x) to[x] += from[x];
}

}  // namespace

int64_t dynamic_routing_saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  return couplings_offset(Cut(shape), rule, rule.iterations);
}

void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const int64_t last = rule.iterations - 1, pose_floats = cut.groups * cut.pose_floats;
  const Buffer partial(cut.chunks * pose_floats);  // [chunks, groups, J, D_out, L]
  const Buffer group_poses(pose_floats);           // v_j
  const Buffer agreed(pose_floats);                // sum of v_j so far
  Buffer scratch_sums, scratch_couplings;
  if (saved == nullptr) scratch_sums = Buffer(pose_floats);
  if (saved == nullptr && couplings != nullptr)
    scratch_couplings = Buffer(cut.groups * cut.coupling_floats);

  const float* last_couplings = nullptr;
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    const CouplingLevels levels = iteration == last ? rule.levels : CouplingLevels{};
    float* group_couplings = nullptr;  // [groups, I, J, L]
    if (iteration > 0 && saved != nullptr)
      group_couplings = saved + couplings_offset(cut, rule, iteration);
    else if (iteration == last)
      group_couplings = scratch_couplings.get();
    last_couplings = group_couplings;

    for_each_chunk(cut, simd::dynamic_routing_scratch_floats(shape),
                   [&](int64_t chunk, float* scratch) {
                     for (int64_t group = 0; group < cut.groups; ++group) {
                       const simd::ChildRange range = problem.range(chunk, group);
                       float* sums = partial.get() + (chunk * cut.groups + group) * cut.pose_floats;
                       if (iteration == 0)
                         simd::sum_votes(range, sums);
                       else
                         simd::route_votes(range, agreed.get() + group * cut.pose_floats, levels,
                                           group_couplings == nullptr
                                               ? nullptr
                                               : group_couplings + group * cut.coupling_floats,
                                           sums, scratch);
                     }
                   });
    squash_partial(problem, rule, iteration, bias, partial.get(),
                   saved == nullptr ? scratch_sums.get() : saved + sums_offset(cut, iteration),
                   group_poses.get());
    if (iteration == 0)
      std::copy_n(group_poses.get(), pose_floats, agreed.get());
    else
      add_to(agreed.get(), group_poses.get(), pose_floats);
  }

  from_groups(cut, shape.batch, shape.pose_size(), group_poses.get(), poses);
  if (couplings != nullptr)
    give_couplings(problem, rule, last == 0 ? nullptr : last_couplings, couplings);
}

namespace {

// One iteration of the backward pass, over all children.
struct Backward {
  const Problem& problem;
  const float* grad_sums;  ///< [groups, J, D_out, L]
  const float* couplings;  ///< [groups, I, J, L]; null: uniform
  float uniform;
  const float* agreed;   ///< full gradient only, [groups, J, D_out, L]
  float* grad_children;  ///< [groups, I, D_in, L] or null
  float* grad_weight;    ///< [I, J, D_out, D_in] or null
  bool accumulate;
  float* grad_agreed;  ///< partial sums per chunk, [chunks, groups, J, D_out, L], or null

  void run() const {
    const Cut& cut = problem.cut;
    const RoutingShape& shape = problem.shape;
    const int64_t logits_stride = cut.chunk * shape.parents * cut.lanes;
    const int64_t logits_floats = cut.groups * logits_stride;
    const auto work = [&](int64_t chunk, float* memory) {
      float *grad_logits = memory, *scratch = memory + logits_floats;
      if (grad_children != nullptr || grad_agreed != nullptr || agreed != nullptr)
        for (int64_t group = 0; group < cut.groups; ++group)
          simd::backward_votes(problem.range(chunk, group),
                               group_step(chunk, group, grad_logits + group * logits_stride),
                               scratch);
      if (grad_weight != nullptr)
        simd::weight_gradient(problem.range(chunk, 0),
                              {.from = {.groups = cut.groups,
                                        .children_stride = cut.child_floats,
                                        .grad_sums = grad_sums,
                                        .sums_stride = cut.pose_floats,
                                        .couplings = couplings,
                                        .couplings_stride = cut.coupling_floats,
                                        .uniform = uniform},
                               .agreed = agreed,
                               .grad_logits = grad_logits,
                               .logits_stride = logits_stride,
                               .grad_weight = grad_weight,
                               .accumulate = accumulate},
                              scratch);
    };
    for_each_chunk(cut, logits_floats + simd::dynamic_routing_scratch_floats(shape), work);
  }

 private:
  simd::BackwardStep group_step(int64_t chunk, int64_t group, float* grad_logits) const {
    const Cut& cut = problem.cut;
    const auto of_group = [group](auto* base, int64_t stride) {
      return base == nullptr ? nullptr : base + group * stride;
    };
    return {.grad_sums = of_group(grad_sums, cut.pose_floats),
            .couplings = of_group(couplings, cut.coupling_floats),
            .uniform = uniform,
            .agreed = of_group(agreed, cut.pose_floats),
            .grad_children = of_group(grad_children, cut.child_floats),
            .accumulate = accumulate,
            .grad_agreed = grad_agreed == nullptr
                               ? nullptr
                               : grad_agreed + (chunk * cut.groups + group) * cut.pose_floats,
            .grad_logits = grad_logits};
  }
};

// The sum of the parents' poses of all iterations before `iteration`, [groups, J, D_out, L].
Buffer agreed_before(const Problem& problem, const RoutingRule& rule, const float* saved,
                     int64_t iteration) {
  const Cut& cut = problem.cut;
  Buffer agreed(cut.groups * cut.pose_floats);
  std::fill_n(agreed.get(), cut.groups * cut.pose_floats, 0.0F);
  const Buffer poses(cut.pose_floats);
  for (int64_t earlier = 0; earlier < iteration; ++earlier)
    for (int64_t group = 0; group < cut.groups; ++group) {
      const int64_t at = group * cut.pose_floats;
      simd::squash_group(problem.shape.parents, problem.shape.parent_dim,
                         saved + sums_offset(cut, earlier) + at, rule.epsilon, poses.get());
      add_to(agreed.get() + at, poses.get(), cut.pose_floats);
    }
  return agreed;
}

}  // namespace

void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const int64_t last = rule.iterations - 1, pose_floats = cut.groups * cut.pose_floats;
  // Rounded couplings carry no gradient back to earlier iterations.
  const bool through_couplings =
      rule.levels.count == 0 &&
      (rule.full_gradient || (gradients.bias != nullptr && rule.bias_every_iteration));

  const Buffer carried(pose_floats);  // dL/dv_j of the iteration at hand
  to_groups(cut, shape.batch, shape.pose_size(), grad_poses, carried.get());
  const Buffer grad_sums(pose_floats);
  Buffer grad_children, partial;
  if (gradients.children != nullptr) grad_children = Buffer(cut.groups * cut.child_floats);
  if (through_couplings && last > 0) partial = Buffer(cut.chunks * pose_floats);
  if (gradients.bias != nullptr) std::fill_n(gradients.bias, shape.pose_size(), 0.0F);

  for (int64_t iteration = last; iteration >= 0; --iteration) {
    squash_gradients(problem, rule, saved + sums_offset(cut, iteration), carried.get(),
                     grad_sums.get());
    if (gradients.bias != nullptr && (iteration == last || rule.bias_every_iteration))
      add_bias_gradient(problem, grad_sums.get(), gradients.bias);

    const bool direct = iteration == last || rule.full_gradient;
    const bool go_on = iteration > 0 && through_couplings;
    Buffer agreed;
    if (rule.full_gradient && go_on) agreed = agreed_before(problem, rule, saved, iteration);
    Backward{.problem = problem,
             .grad_sums = grad_sums.get(),
             .couplings = iteration == 0 ? nullptr : saved + couplings_offset(cut, rule, iteration),
             .uniform = rule.first_coupling,
             .agreed = agreed.get(),
             .grad_children = direct ? grad_children.get() : nullptr,
             .grad_weight = direct ? gradients.weight : nullptr,
             .accumulate = iteration != last,
             .grad_agreed = go_on ? partial.get() : nullptr}
        .run();
    if (!go_on) break;

    // The poses of an iteration are part of the logits of all later iterations.
    if (iteration == last) std::fill_n(carried.get(), pose_floats, 0.0F);
    for (int64_t chunk = 0; chunk < cut.chunks; ++chunk)
      add_to(carried.get(), partial.get() + chunk * pose_floats, pose_floats);
  }
  if (gradients.children != nullptr)
    from_groups(cut, shape.batch, shape.children * shape.child_dim, grad_children.get(),
                gradients.children);
}

}  // namespace remcaps::kernels::cpu
