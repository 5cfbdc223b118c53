#include "remcaps/kernels/routing/scaled_distance.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/routing/scaled_distance_cuda.h"
#include "remcaps/kernels/routing/weight_gradient_cuda.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kChildWarps = 8;  // children per block, in kernels with one warp per child
constexpr int kMostTerms = 5;   // per launch of weight_gradient: what three iterations need

// The results of the iterations: of all if the gradient goes back through them, else of the last.
class Trail {
 public:
  Trail(Arena& arena, const Plan& plan, const RoutingRule& rule)
      : u(arena.take(plan.child_floats())), plan_(plan), all_(rule.distances_have_gradient()) {
    const int64_t kept = all_ ? rule.iterations : 1;
    const int64_t coupled = all_ ? rule.iterations - 1 : int64_t(rule.iterations > 1);
    sums_ = arena.take(kept * plan.pose_floats());
    poses_ = arena.take(kept * plan.pose_floats());
    scales_ = arena.take(coupled * plan.dims.padded);
    couplings_ = arena.take(coupled * plan.coupling_floats());
    distances_ = all_ ? arena.take(coupled * plan.coupling_floats()) : couplings_;
  }

  float* u;  ///< the children in image-last layout, [I, D_in, P]

  float* sums(int64_t iteration) const { return sums_ + pose_offset(iteration); }
  float* poses(int64_t iteration) const { return poses_ + pose_offset(iteration); }
  // Null in the first iteration, whose couplings are all equal. Distances that are not kept share
  // the array of the couplings.
  float* couplings(int64_t iteration) const { return of_pairs(couplings_, iteration); }
  float* distances(int64_t iteration) const { return of_pairs(distances_, iteration); }
  // The scale t of the logits, [P], of an iteration after the first.
  float* scales(int64_t iteration) const {
    return scales_ + (all_ ? iteration - 1 : 0) * plan_.dims.padded;
  }

 private:
  int64_t pose_offset(int64_t iteration) const {
    return all_ ? iteration * plan_.pose_floats() : 0;
  }
  float* of_pairs(float* base, int64_t iteration) const {
    if (iteration == 0) return nullptr;
    return base + (all_ ? iteration - 1 : 0) * plan_.coupling_floats();
  }

  const Plan& plan_;
  bool all_;
  float *sums_, *poses_, *scales_, *couplings_, *distances_;
};

struct ForwardScratch {
  ForwardScratch(Arena& arena, const Plan& plan)
      : partial(arena.take(plan.chunks * plan.pose_floats())),
        totals(arena.take(int64_t(total_rows(plan)) * plan.dims.padded)) {}
  static int total_rows(const Plan& plan) { return plan.chunks * plan.parent_blocks; }
  float *partial, *totals;
};

struct BackwardScratch {
  BackwardScratch(Arena& arena, const Plan& plan, const RoutingRule& rule,
                  const RoutingGradients& gradients)
      : carried(arena.take(plan.pose_floats())), grad_u(arena.take(plan.child_floats())) {
    const int64_t iterations = rule.distances_have_gradient() ? rule.iterations : 1;
    grad_sums = arena.take(iterations * plan.pose_floats());
    if (gradients.weight != nullptr) {
      factors = arena.take(plan.coupling_floats());
      vote_factors = arena.take(plan.coupling_floats());
    }
    if (iterations == 1) return;
    partial = arena.take(plan.chunks * plan.pose_floats());
    totals = arena.take(int64_t(total_rows(plan)) * plan.dims.padded);
    grad_means = arena.take(plan.dims.padded);
    pulls = arena.take((iterations - 1) * plan.coupling_floats());
  }
  static int total_rows(const Plan& plan) { return blocks_for(plan.dims.children, kChildWarps); }

  float *carried, *grad_u;
  float* grad_sums;  ///< of all iterations with a gradient
  float *factors = nullptr, *vote_factors = nullptr;
  // For the full gradient only. `pulls` is e_ij of all iterations after the first.
  float *partial = nullptr, *totals = nullptr, *grad_means = nullptr, *pulls = nullptr;
};

class DistanceLauncher : public RoutingSteps {
 public:
  DistanceLauncher(const Plan& plan, const float* weight, const float* u, cudaStream_t stream)
      : RoutingSteps(plan.dims, stream), plan_(plan), weight_(weight), u_(u) {}

  void weighted_sums(const float* couplings, float* partial) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      clamped_sums<kDin, kDout>
          <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
             stream_>>>(dims_, plan_.chunk, u_, weight_, couplings, partial);
    });
    check_launch("clamped_sums");
  }

  void distances(const float* poses, float* out, float* totals) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      vote_distances<kDin, kDout>
          <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
             stream_>>>(dims_, plan_.chunk, u_, weight_, poses, out, totals);
    });
    check_launch("vote_distances");
  }

  void logit_scales(Agreement agreement, const float* totals, float* scales) const {
    of_means(agreement, ForwardScratch::total_rows(plan_), ScaleOfMean{log_odds()}, totals, scales);
  }

  void logits_gradient(const LogitGradientArguments& arguments) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      logit_gradient<kDin, kDout, kChildWarps>
          <<<child_grid(), dim3(kWarp, kChildWarps), queue_bytes<kDin, kDout>(kChildWarps),
             stream_>>>(dims_, arguments);
    });
    check_launch("logit_gradient");
  }

  void means_gradient(Agreement agreement, const float* totals, const float* scales,
                      float* grad_means) const {
    of_means(agreement, BackwardScratch::total_rows(plan_),
             GradientOfMean{log_odds(), dims_.batch, scales}, totals, grad_means);
  }

  void poses_gradient(const PoseGradientArguments& arguments) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      pose_gradient<kDin, kDout>
          <<<plan_.parent_grid(), plan_.parent_block(), queue_bytes<kDin, kDout>(plan_.warps),
             stream_>>>(dims_, plan_.chunk, arguments);
    });
    check_launch("pose_gradient");
  }

  void votes_gradient(const VoteGradientArguments& arguments) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      const auto kernel = arguments.later.count > 0
                              ? vote_gradient<kDin, kDout, kChildWarps, /*kFull=*/true>
                              : vote_gradient<kDin, kDout, kChildWarps, /*kFull=*/false>;
      kernel<<<child_grid(), dim3(kWarp, kChildWarps), queue_bytes<kDin, kDout>(kChildWarps),
               stream_>>>(dims_, arguments);
    });
    check_launch("vote_gradient");
  }

  template <int kTerms>
  void weights_gradient(const WeightGradientArguments<kTerms>& arguments) const {
    with_sizes([&](auto sizes) {
      constexpr int kDin = decltype(sizes)::kDin, kDout = decltype(sizes)::kDout;
      // The sums and moments of a thread must fit into registers.
      constexpr int kRows = kDin > 8 ? 4 : std::min(kDout, 16);
      const dim3 grid(blocks_for(dims_.children, kWarp), dims_.parents, kDout / kRows);
      weight_gradient<kDin, kDout, kRows, /*kWithVotes=*/true, kTerms>
          <<<grid, dim3(kWarp, kGradientWarps), 0, stream_>>>(dims_, arguments);
    });
    check_launch("weight_gradient");
  }

 private:
  template <typename Fast>
  void with_sizes(const Fast& fast) const {
    with_pose_sizes(dims_.child_dim, dims_.parent_dim, fast, [&] {
      throw std::logic_error("scaled-distance routing: no kernel for poses of " +
                             std::to_string(dims_.child_dim) + " and " +
                             std::to_string(dims_.parent_dim));
    });
  }

  // One warp per child.
  dim3 child_grid() const { return dim3(blocks_for(dims_.children, kChildWarps), plan_.tiles); }

  // A single parent takes everything, whatever its distance.
  float log_odds() const {
    return static_cast<float>(dims_.parents > 1 ? std::log(9.0 * (dims_.parents - 1)) : 0.0);
  }

  template <typename OfMean>
  void of_means(Agreement agreement, int rows, const OfMean& of_mean, const float* totals,
                float* out) const {
    const auto kernel = agreement == Agreement::kImageDistance ? mean_over_pairs<true, OfMean>
                                                               : mean_over_pairs<false, OfMean>;
    kernel<<<1, dim3(kWarp, kScaleRows), 0, stream_>>>(dims_, rows, of_mean, totals, out);
    check_launch("mean_over_pairs");
  }

  const Plan& plan_;
  const float *weight_, *u_;
};

}  // namespace

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  const Plan plan(shape);
  Arena arena(nullptr);
  Trail(arena, plan, rule);
  return arena.used();
}

int64_t scaled_distance_forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                               bool saves) {
  const Plan plan(shape);
  Arena arena(nullptr);
  ForwardScratch(arena, plan);
  if (!saves) Trail(arena, plan, rule);
  return arena.used();
}

int64_t scaled_distance_backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                                const RoutingGradients& gradients) {
  const Plan plan(shape);
  Arena arena(nullptr);
  BackwardScratch(arena, plan, rule, gradients);
  return arena.used();
}

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream) {
  const Plan plan(shape);
  Arena scratch_arena(scratch), saved_arena(saved);
  const ForwardScratch work(scratch_arena, plan);
  const Trail trail(saved == nullptr ? scratch_arena : saved_arena, plan, rule);
  const DistanceLauncher launch(plan, weight, trail.u, stream);
  const int64_t last = rule.iterations - 1;

  launch.to_image_last(shape.children * shape.child_dim, children, trail.u);
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    if (iteration > 0) {
      launch.distances(trail.poses(iteration - 1), trail.distances(iteration), work.totals);
      launch.logit_scales(rule.agreement, work.totals, trail.scales(iteration));
      launch.softmax(trail.scales(iteration), iteration == last ? rule.levels : CouplingLevels{},
                     trail.distances(iteration), trail.couplings(iteration));
    }
    launch.weighted_sums(trail.couplings(iteration), work.partial);
    launch.squash({.partial = work.partial,
                   .chunks = plan.chunks,
                   .scale = iteration == 0 ? rule.first_coupling : 1.0F,
                   .epsilon = rule.epsilon,
                   .bias = rule.bias_every_iteration || iteration == last ? bias : nullptr,
                   .agreed_before = nullptr,
                   .sums = trail.sums(iteration),
                   .poses = trail.poses(iteration),
                   .agreed = nullptr});
  }
  launch.to_image_first(shape.pose_size(), trail.poses(last), poses);
  if (couplings != nullptr)
    launch.give_couplings(trail.couplings(last), rule.first_coupling, couplings);
}

namespace {

// The backward pass through the iterations, on one stream.
class DistanceBackward {
 public:
  DistanceBackward(const Plan& plan, const RoutingRule& rule, const Trail& trail,
                   const BackwardScratch& work, const float* weight, cudaStream_t stream)
      : plan_(plan),
        rule_(rule),
        trail_(trail),
        work_(work),
        weight_(weight),
        launch_(plan, weight, trail.u, stream),
        last_(rule.iterations - 1),
        first_(rule.distances_have_gradient() ? 0 : last_) {}

  // dL/ds_j and e_ij of every iteration with a gradient.
  void to_sums(const float* grad_poses) const {
    launch_.to_image_last(int64_t(plan_.dims.parents) * plan_.dims.parent_dim, grad_poses,
                          work_.carried);
    for (int64_t iteration = last_; iteration >= first_; --iteration) {
      // The poses of an earlier iteration are used only in the distances of the next one.
      launch_.squash_backward({.partial = work_.partial,
                               .chunks = iteration == last_ ? 0 : plan_.chunks,
                               .epsilon = rule_.epsilon,
                               .fresh = iteration != last_,
                               .sums = trail_.sums(iteration),
                               .carried = work_.carried,
                               .grad_sums = grad_sums(iteration)});
      if (iteration > first_) to_poses_before(iteration);
    }
  }

  void to_bias(float* grad_bias) const {
    const bool every = rule_.bias_every_iteration;
    launch_.bias_gradient(every ? static_cast<int>(last_ - first_ + 1) : 1,
                          grad_sums(every ? first_ : last_), grad_bias);
  }

  // dL/du_i, in image-last layout, and the factors of the weights' gradient.
  void to_votes() const {
    LaterIterations later{};
    if (first_ < last_)
      later = {.count = static_cast<int>(last_ - first_),
               .couplings = trail_.couplings(first_ + 1),
               .pulls = pulls(first_ + 1),
               .grad_sums = grad_sums(first_ + 1),
               .poses = trail_.poses(first_)};
    launch_.votes_gradient({.u = trail_.u,
                            .weight = weight_,
                            .couplings = trail_.couplings(first_),
                            .uniform = rule_.first_coupling,
                            .grad_sums = grad_sums(first_),
                            .later = later,
                            .grad_u = work_.grad_u,
                            .factors = work_.factors,
                            .vote_factors = work_.vote_factors});
  }

  void to_children(float* grad_children) const {
    launch_.to_image_first(int64_t(plan_.dims.children) * plan_.dims.child_dim, work_.grad_u,
                           grad_children);
  }

  // `children` in their original layout.
  void to_weights(const float* children, float* grad_weight) const {
    if (first_ == last_)
      return launch_.weights_gradient<1>({.children = children,
                                          .factors = work_.factors,
                                          .uniform = 0,
                                          .terms = {{grad_sums(last_), nullptr, 1}},
                                          .vote_factors = work_.vote_factors,
                                          .weight = weight_,
                                          .accumulate = false,
                                          .grad_weight = grad_weight});
    const std::vector<PairTerm> terms = pair_terms();
    for (size_t begin = 0; begin < terms.size(); begin += kMostTerms) {
      const bool is_first = begin == 0;
      WeightGradientArguments<kMostTerms> arguments{
          .children = children,
          .factors = work_.factors,
          .uniform = 0,
          .terms = {},
          .vote_factors = is_first ? work_.vote_factors : nullptr,
          .weight = weight_,
          .accumulate = !is_first,
          .grad_weight = grad_weight};
      const size_t end = std::min(terms.size(), begin + kMostTerms);
      std::copy(terms.begin() + begin, terms.begin() + end, arguments.terms);
      launch_.weights_gradient(arguments);
    }
  }

 private:
  float* grad_sums(int64_t iteration) const {
    return work_.grad_sums + (iteration - first_) * plan_.pose_floats();
  }
  // `iteration` is 1 or more.
  float* pulls(int64_t iteration) const {
    return work_.pulls + (iteration - 1) * plan_.coupling_floats();
  }

  void to_poses_before(int64_t iteration) const {
    launch_.logits_gradient({.u = trail_.u,
                             .weight = weight_,
                             .couplings = trail_.couplings(iteration),
                             .distances = trail_.distances(iteration),
                             .grad_sums = grad_sums(iteration),
                             .grad_logits = pulls(iteration),
                             .totals = work_.totals});
    launch_.means_gradient(rule_.agreement, work_.totals, trail_.scales(iteration),
                           work_.grad_means);
    launch_.poses_gradient({.u = trail_.u,
                            .weight = weight_,
                            .poses = trail_.poses(iteration - 1),
                            .distances = trail_.distances(iteration),
                            .scales = trail_.scales(iteration),
                            .grad_means = work_.grad_means,
                            .pulls = pulls(iteration),
                            .partial = work_.partial});
  }

  // The terms of the full gradient of a vote, without the part along the vote.
  std::vector<PairTerm> pair_terms() const {
    std::vector<PairTerm> terms = {{grad_sums(0), nullptr, rule_.first_coupling}};
    for (int64_t iteration = 1; iteration <= last_; ++iteration) {
      terms.push_back({grad_sums(iteration), trail_.couplings(iteration), 1});
      terms.push_back({trail_.poses(iteration - 1), pulls(iteration), -1});
    }
    return terms;
  }

  const Plan& plan_;
  const RoutingRule& rule_;
  const Trail& trail_;
  const BackwardScratch& work_;
  const float* weight_;
  DistanceLauncher launch_;
  int64_t last_, first_;  ///< iterations with a gradient
};

}  // namespace

void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream) {
  const Plan plan(shape);
  Arena scratch_arena(scratch), saved_arena(const_cast<float*>(saved));
  const BackwardScratch work(scratch_arena, plan, rule, gradients);
  const Trail trail(saved_arena, plan, rule);
  const DistanceBackward backward(plan, rule, trail, work, weight, stream);
  backward.to_sums(grad_poses);
  if (gradients.bias != nullptr) backward.to_bias(gradients.bias);
  if (gradients.children == nullptr && gradients.weight == nullptr) return;
  backward.to_votes();
  if (gradients.children != nullptr) backward.to_children(gradients.children);
  if (gradients.weight != nullptr) backward.to_weights(children, gradients.weight);
}

}  // namespace remcaps::kernels::cuda
