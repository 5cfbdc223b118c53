#include "remcaps/kernels/dynamic_routing_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "remcaps/kernels/dynamic_routing_lanes.h"
#include "remcaps/kernels/lane_layout.h"

namespace remcaps::kernels::cpu {
namespace {

// 1 for each block W_ij that has a weight other than zero, [I, J].
std::vector<uint8_t> alive_blocks(const RoutingShape& shape, const float* weight) {
  const int64_t block = shape.parent_dim * shape.child_dim;
  std::vector<uint8_t> alive(shape.children * shape.parents);
  for (size_t ij = 0; ij < alive.size(); ++ij) {
    const float* w = weight + ij * block;
    alive[ij] = std::any_of(w, w + block, [](float x) { return x != 0; });
  }
  return alive;
}

// What both passes need: the packed children and the blocks worth visiting.
struct Problem {
  Problem(const RoutingShape& shape_, const float* children, const float* weight_)
      : shape(shape_),
        cut(shape),
        weight(weight_),
        alive(alive_blocks(shape, weight)),
        packed(cut.groups * cut.child_floats) {
    pack(cut, shape.batch, shape.children * shape.child_dim, children, packed.get());
  }

  ChildRange range(int64_t chunk, int64_t group) const {
    return {.shape = shape,
            .begin = chunk * cut.chunk,
            .end = std::min(shape.children, (chunk + 1) * cut.chunk),
            .weight = weight,
            .alive = alive.data(),
            .children = packed.get() + group * cut.child_floats};
  }

  RoutingShape shape;
  Cut cut;
  const float* weight;
  std::vector<uint8_t> alive;
  Buffer packed;  ///< [groups, I, D_in, L]
};

// The saved floats: sums [iterations, groups, J, D_out, L], then the couplings of all iterations
// but the first, [iterations - 1, groups, I, J, L].
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

int64_t saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  return couplings_offset(Cut(shape), rule, rule.iterations);
}

void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const int64_t last = rule.iterations - 1;
  const int64_t chunk_stride = cut.groups * cut.pose_floats;
  const Buffer partial(cut.chunks * chunk_stride);          // [chunks, groups, J, D_out, L]
  const Buffer packed_poses(cut.groups * cut.pose_floats);  // v_j
  const Buffer agreed(cut.groups * cut.pose_floats);        // sum of v_j so far
  Buffer scratch_sums, scratch_couplings;
  if (saved == nullptr) scratch_sums = Buffer(cut.groups * cut.pose_floats);
  if (saved == nullptr && couplings != nullptr)
    scratch_couplings = Buffer(cut.groups * cut.coupling_floats);

  const float* last_couplings = nullptr;
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    const CouplingLevels levels = iteration == last ? rule.levels : CouplingLevels{};
    float* packed_couplings = nullptr;  // [groups, I, J, L]
    if (iteration > 0 && saved != nullptr)
      packed_couplings = saved + couplings_offset(cut, rule, iteration);
    else if (iteration == last)
      packed_couplings = scratch_couplings.get();
    last_couplings = packed_couplings;

    ChunkQueue queue(cut.chunks);
    on_every_thread([&] {
      const Buffer scratch(lane_scratch_floats(shape));
      while (const auto chunk = queue.next())
        for (int64_t group = 0; group < cut.groups; ++group) {
          const ChildRange range = problem.range(*chunk, group);
          float* sums = partial.get() + *chunk * chunk_stride + group * cut.pose_floats;
          if (iteration == 0)
            sum_votes(range, sums);
          else
            route_votes(range, agreed.get() + group * cut.pose_floats, levels,
                        packed_couplings == nullptr
                            ? nullptr
                            : packed_couplings + group * cut.coupling_floats,
                        sums, scratch.get());
        }
    });

    at::parallel_for(0, cut.groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t at = group * cut.pose_floats;
        squash_sums(
            {.parents = shape.parents,
             .parent_dim = shape.parent_dim,
             .partial = partial.get() + at,
             .chunks = cut.chunks,
             .stride = chunk_stride,
             .scale = iteration == 0 ? rule.first_coupling : 1.0F,
             .epsilon = rule.epsilon,
             .bias = rule.bias_every_iteration || iteration == last ? bias : nullptr,
             .sums =
                 (saved == nullptr ? scratch_sums.get() : saved + sums_offset(cut, iteration)) + at,
             .poses = packed_poses.get() + at});
        if (iteration == 0)
          std::copy_n(packed_poses.get() + at, cut.pose_floats, agreed.get() + at);
        else
          add_to(agreed.get() + at, packed_poses.get() + at, cut.pose_floats);
      }
    });
  }

  unpack(cut, shape.batch, shape.pose_size(), packed_poses.get(), poses);
  if (couplings == nullptr) return;
  if (last == 0)
    std::fill_n(couplings, shape.batch * shape.children * shape.parents, rule.first_coupling);
  else
    unpack(cut, shape.batch, shape.children * shape.parents, last_couplings, couplings);
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
    ChunkQueue queue(cut.chunks);
    on_every_thread([&] {
      const Buffer scratch(lane_scratch_floats(shape));
      const int64_t logits_stride = cut.chunk * shape.parents * cut.lanes;
      const Buffer grad_logits(cut.groups * logits_stride);
      while (const auto next = queue.next()) {
        const int64_t chunk = *next;
        if (grad_children != nullptr || grad_agreed != nullptr || agreed != nullptr)
          for (int64_t group = 0; group < cut.groups; ++group)
            backward_votes(problem.range(chunk, group),
                           group_step(chunk, group, grad_logits.get() + group * logits_stride),
                           scratch.get());
        if (grad_weight != nullptr)
          weight_gradient(problem.range(chunk, 0),
                          {.groups = cut.groups,
                           .children_stride = cut.child_floats,
                           .grad_sums = grad_sums,
                           .sums_stride = cut.pose_floats,
                           .couplings = couplings,
                           .couplings_stride = cut.coupling_floats,
                           .uniform = uniform,
                           .agreed = agreed,
                           .grad_logits = grad_logits.get(),
                           .logits_stride = logits_stride,
                           .grad_weight = grad_weight,
                           .accumulate = accumulate},
                          scratch.get());
      }
    });
  }

 private:
  BackwardStep group_step(int64_t chunk, int64_t group, float* grad_logits) const {
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
      squash_group(problem.shape.parents, problem.shape.parent_dim,
                   saved + sums_offset(cut, earlier) + at, rule.epsilon, poses.get());
      add_to(agreed.get() + at, poses.get(), cut.pose_floats);
    }
  return agreed;
}

// grad_bias[j, d] += sum over images of grad_sums[group, j, d, image]. Lanes beyond the batch hold
// zero gradients.
void add_bias_gradient(const Cut& cut, int64_t pose_size, const float* grad_sums,
                       float* grad_bias) {
  for (int64_t group = 0; group < cut.groups; ++group)
    for (int64_t x = 0; x < pose_size; ++x) {
      const float* lanes = grad_sums + group * cut.pose_floats + x * cut.lanes;
      float sum = 0;
      for (int64_t image = 0; image < cut.lanes; ++image) sum += lanes[image];
      grad_bias[x] += sum;
    }
}

}  // namespace

void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const int64_t last = rule.iterations - 1, pose_floats = cut.groups * cut.pose_floats;
  // Only couplings that are smooth carry a gradient back to the iterations before.
  const bool through_couplings =
      rule.levels.count == 0 &&
      (gradients.full || (gradients.bias != nullptr && rule.bias_every_iteration));

  const Buffer carried(pose_floats);  // dL/dv_j of the iteration at hand
  pack(cut, shape.batch, shape.pose_size(), grad_poses, carried.get());
  const Buffer grad_sums(pose_floats);
  Buffer grad_children, partial;
  if (gradients.children != nullptr) grad_children = Buffer(cut.groups * cut.child_floats);
  if (through_couplings && last > 0) partial = Buffer(cut.chunks * pose_floats);
  if (gradients.bias != nullptr) std::fill_n(gradients.bias, shape.pose_size(), 0.0F);

  for (int64_t iteration = last; iteration >= 0; --iteration) {
    for (int64_t group = 0; group < cut.groups; ++group) {
      const int64_t at = group * cut.pose_floats;
      squash_gradient(shape.parents, shape.parent_dim, saved + sums_offset(cut, iteration) + at,
                      carried.get() + at, rule.epsilon, grad_sums.get() + at);
    }
    if (gradients.bias != nullptr && (iteration == last || rule.bias_every_iteration))
      add_bias_gradient(cut, shape.pose_size(), grad_sums.get(), gradients.bias);

    const bool direct = iteration == last || gradients.full;
    const bool go_on = iteration > 0 && through_couplings;
    Buffer agreed;
    if (gradients.full && go_on) agreed = agreed_before(problem, rule, saved, iteration);
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

    // Poses of an earlier iteration take part in the logits of all later ones.
    if (iteration == last) std::fill_n(carried.get(), pose_floats, 0.0F);
    for (int64_t chunk = 0; chunk < cut.chunks; ++chunk)
      add_to(carried.get(), partial.get() + chunk * pose_floats, pose_floats);
  }
  if (gradients.children != nullptr)
    unpack(cut, shape.batch, shape.children * shape.child_dim, grad_children.get(),
           gradients.children);
}

}  // namespace remcaps::kernels::cpu
