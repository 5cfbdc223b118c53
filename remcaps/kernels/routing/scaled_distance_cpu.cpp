#include "remcaps/kernels/routing/scaled_distance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "remcaps/kernels/formulas.h"

namespace remcaps::kernels::cpu {
namespace {

// Offsets of an iteration's results in the saved floats. All iterations are kept if the gradient
// goes back through them, else only the last one. Iterations after the first have distances,
// couplings and scales. Distances that are not kept share the array of the couplings.
class Trail {
 public:
  Trail(const Cut& cut, const RoutingRule& rule)
      : all_(rule.distances_have_gradient()),
        pose_floats_(cut.groups * cut.pose_floats),
        coupling_floats_(cut.groups * cut.coupling_floats),
        scale_floats_(cut.groups * cut.lanes),
        sums_(all_ ? rule.iterations : 1),
        coupled_(all_ ? rule.iterations - 1 : int64_t(rule.iterations > 1)) {}

  // Sums s_j, [groups, J, D_out, L].
  int64_t sums(int64_t iteration) const { return all_ ? iteration * pose_floats_ : 0; }
  // t of each image, [groups, L].
  int64_t scales(int64_t iteration) const {
    return sums_ * pose_floats_ + index(iteration) * scale_floats_;
  }
  // c_ij and d_ij, both [groups, I, J, L].
  int64_t couplings(int64_t iteration) const {
    return sums_ * pose_floats_ + coupled_ * scale_floats_ + index(iteration) * coupling_floats_;
  }
  int64_t distances(int64_t iteration) const {
    return couplings(iteration) + (all_ ? coupled_ * coupling_floats_ : 0);
  }
  int64_t floats() const {
    return sums_ * pose_floats_ + coupled_ * (scale_floats_ + (all_ ? 2 : 1) * coupling_floats_);
  }

 private:
  // The first iteration has no such results and takes no space.
  int64_t index(int64_t iteration) const { return all_ && iteration > 0 ? iteration - 1 : 0; }

  bool all_;
  int64_t pose_floats_, coupling_floats_, scale_floats_;
  int64_t sums_, coupled_;  ///< how many iterations are kept
};

// A single parent takes everything, whatever its distance.
float log_odds_of(const RoutingShape& shape) {
  const auto others = static_cast<double>(shape.parents - 1);
  return static_cast<float>(shape.parents > 1 ? std::log(9.0 * others) : 0.0);
}

// The mean over all pairs (i, j) of each image, or of the batch. `totals` [chunks, groups, L] holds
// the sums over the pairs of each chunk.
std::vector<double> means_over_pairs(const Problem& problem, Agreement agreement,
                                     const float* totals) {
  const RoutingShape& shape = problem.shape;
  const int64_t images = problem.cut.groups * problem.cut.lanes;
  const double pairs = static_cast<double>(shape.children) * static_cast<double>(shape.parents);
  std::vector<double> means(images, 0.0);
  for (int64_t chunk = 0; chunk < problem.cut.chunks; ++chunk)
    for (int64_t image = 0; image < images; ++image) means[image] += totals[chunk * images + image];
  for (double& mean : means) mean /= pairs;
  if (agreement == Agreement::kBatchDistance) {
    // Lanes beyond the batch do not count.
    const double of_batch = std::accumulate(means.begin(), means.begin() + shape.batch, 0.0);
    std::fill(means.begin(), means.end(), of_batch / static_cast<double>(shape.batch));
  }
  return means;
}

// The scale t of each image's logits, [groups, L], from the sums of its distances.
void distance_scales(const Problem& problem, Agreement agreement, const float* totals,
                     float* scales) {
  const std::vector<double> means = means_over_pairs(problem, agreement, totals);
  const float log_odds = log_odds_of(problem.shape);
  for (size_t image = 0; image < means.size(); ++image)
    scales[image] = distance_scale(static_cast<float>(means[image]), log_odds);
}

// The share that each distance of an image has in the gradient of the mean distance, [groups, L],
// from the sums of dL/db_ij d_ij, which add up to the gradient of t. 0 beyond the batch.
void mean_gradients(const Problem& problem, Agreement agreement, const float* totals,
                    const float* scales, float* grad_means) {
  const std::vector<double> means = means_over_pairs(problem, agreement, totals);
  const float log_odds = log_odds_of(problem.shape);
  std::fill_n(grad_means, means.size(), 0.0F);
  for (int64_t image = 0; image < problem.shape.batch; ++image)
    grad_means[image] =
        static_cast<float>(means[image]) * distance_scale_slope(scales[image], log_odds);
}

}  // namespace

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule) {
  return Trail(Cut(shape), rule).floats();
}

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved) {
  const Problem problem(shape, children, weight);
  const Cut& cut = problem.cut;
  const int64_t last = rule.iterations - 1, pose_floats = cut.groups * cut.pose_floats;
  const int64_t scratch_floats = simd::distance_scratch_floats(shape);
  const Buffer partial(cut.chunks * pose_floats);  // [chunks, groups, J, D_out, L]
  const Buffer group_poses(pose_floats);           // v_j
  const Buffer totals(cut.chunks * cut.groups * cut.lanes);
  const Trail trail(cut, rule);
  Buffer not_saved;
  if (saved == nullptr) not_saved = Buffer(trail.floats());
  float* kept = saved == nullptr ? not_saved.get() : saved;

  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    // The couplings need the mean of all distances. Every image waits for all others, and votes are
    // computed twice per iteration.
    float* distances = kept + trail.distances(iteration);
    float* group_couplings = kept + trail.couplings(iteration);
    float* scales = kept + trail.scales(iteration);
    if (iteration > 0) {
      for_each_chunk(cut, scratch_floats, [&](int64_t chunk, float* scratch) {
        for (int64_t group = 0; group < cut.groups; ++group)
          simd::measure_distances(problem.range(chunk, group),
                                  group_poses.get() + group * cut.pose_floats,
                                  distances + group * cut.coupling_floats,
                                  totals.get() + (chunk * cut.groups + group) * cut.lanes, scratch);
      });
      distance_scales(problem, rule.agreement, totals.get(), scales);
    }
    for_each_chunk(cut, scratch_floats, [&](int64_t chunk, float* scratch) {
      for (int64_t group = 0; group < cut.groups; ++group) {
        simd::DistanceCouplings step;
        if (iteration > 0)
          step = {.distances = distances + group * cut.coupling_floats,
                  .couplings = group_couplings + group * cut.coupling_floats,
                  .scales = scales + group * cut.lanes,
                  .levels = iteration == last ? rule.levels : CouplingLevels{}};
        simd::sum_clamped_votes(problem.range(chunk, group), step,
                                partial.get() + (chunk * cut.groups + group) * cut.pose_floats,
                                scratch);
      }
    });
    squash_partial(problem, rule, iteration, bias, partial.get(), kept + trail.sums(iteration),
                   group_poses.get());
  }

  from_groups(cut, shape.batch, shape.pose_size(), group_poses.get(), poses);
  if (couplings != nullptr)
    give_couplings(problem, rule, last == 0 ? nullptr : kept + trail.couplings(last), couplings);
}

namespace {

// The backward pass through the iterations.
class DistanceBackward {
 public:
  DistanceBackward(const Problem& problem, const RoutingRule& rule, const float* saved)
      : problem_(problem),
        cut_(problem.cut),
        rule_(rule),
        saved_(saved),
        trail_(cut_, rule),
        last_(rule.iterations - 1),
        first_(rule.distances_have_gradient() ? 0 : last_),
        pose_floats_(cut_.groups * cut_.pose_floats),
        coupling_floats_(cut_.groups * cut_.coupling_floats),
        image_floats_(cut_.groups * cut_.lanes),
        grad_sums_((last_ - first_ + 1) * pose_floats_),
        poses_((last_ - first_) * pose_floats_),
        grad_logits_((last_ - first_) * coupling_floats_),
        grad_means_((last_ - first_) * image_floats_) {}

  void run(const float* grad_poses, const RoutingGradients& gradients) const {
    const RoutingShape& shape = problem_.shape;
    const Buffer carried(pose_floats_);  // dL/dv_j of the iteration at hand
    to_groups(cut_, shape.batch, shape.pose_size(), grad_poses, carried.get());
    if (gradients.bias != nullptr) std::fill_n(gradients.bias, shape.pose_size(), 0.0F);
    for (int64_t iteration = last_; iteration >= first_; --iteration) {
      squash_gradients(problem_, rule_, saved_ + trail_.sums(iteration), carried.get(),
                       grad_sums(iteration));
      if (gradients.bias != nullptr && (iteration == last_ || rule_.bias_every_iteration))
        add_bias_gradient(problem_, grad_sums(iteration), gradients.bias);
      if (iteration > first_) to_poses_before(iteration, carried.get());
    }
    if (gradients.children != nullptr || gradients.weight != nullptr) to_votes(gradients);
  }

 private:
  float* grad_sums(int64_t iteration) const {
    return grad_sums_.get() + (iteration - first_) * pose_floats_;
  }
  // For an iteration after the first: the poses its distances were measured from, and the gradients
  // of its logits and mean.
  float* poses_before(int64_t iteration) const {
    return poses_.get() + (iteration - 1) * pose_floats_;
  }
  float* grad_logits(int64_t iteration) const {
    return grad_logits_.get() + (iteration - 1) * coupling_floats_;
  }
  float* grad_means(int64_t iteration) const {
    return grad_means_.get() + (iteration - 1) * image_floats_;
  }

  // dL/dv_j of the iteration before, through the distances. Its poses are used nowhere else.
  void to_poses_before(int64_t iteration, float* grad_poses) const {
    const Buffer by_logits(cut_.chunks * pose_floats_), by_mean(cut_.chunks * pose_floats_);
    const Buffer totals(cut_.chunks * image_floats_);
    const float* sums_before = saved_ + trail_.sums(iteration - 1);
    for (int64_t at = 0; at < pose_floats_; at += cut_.pose_floats)
      simd::squash_group(problem_.shape.parents, problem_.shape.parent_dim, sums_before + at,
                         rule_.epsilon, poses_before(iteration) + at);
    for_each_chunk(
        cut_, simd::distance_gradient_scratch_floats(problem_.shape),
        [&](int64_t chunk, float* scratch) {
          for (int64_t group = 0; group < cut_.groups; ++group) {
            const int64_t pose = group * cut_.pose_floats, pair = group * cut_.coupling_floats;
            const int64_t piece = chunk * cut_.groups + group;
            simd::distance_gradient(problem_.range(chunk, group),
                                    {.grad_sums = grad_sums(iteration) + pose,
                                     .poses = poses_before(iteration) + pose,
                                     .couplings = saved_ + trail_.couplings(iteration) + pair,
                                     .distances = saved_ + trail_.distances(iteration) + pair,
                                     .grad_logits = grad_logits(iteration) + pair,
                                     .by_logits = by_logits.get() + piece * cut_.pose_floats,
                                     .by_mean = by_mean.get() + piece * cut_.pose_floats,
                                     .totals = totals.get() + piece * cut_.lanes},
                                    scratch);
          }
        });
    const float* scales = saved_ + trail_.scales(iteration);
    mean_gradients(problem_, rule_.agreement, totals.get(), scales, grad_means(iteration));
    std::fill_n(grad_poses, pose_floats_, 0.0F);
    add_chunks(by_logits.get(), scales, grad_poses);
    add_chunks(by_mean.get(), grad_means(iteration), grad_poses);
  }

  // sum += factors [groups, L] * (sum of all chunks).
  void add_chunks(const float* partial, const float* factors, float* sum) const {
    for (int64_t chunk = 0; chunk < cut_.chunks; ++chunk)
      for (int64_t group = 0; group < cut_.groups; ++group)
        for (int64_t row = 0; row < problem_.shape.pose_size(); ++row) {
          const int64_t at = group * cut_.pose_floats + row * cut_.lanes;
          for (int64_t image = 0; image < cut_.lanes; ++image)
            sum[at + image] +=
                factors[group * cut_.lanes + image] * partial[chunk * pose_floats_ + at + image];
        }
  }

  void to_votes(const RoutingGradients& gradients) const {
    const RoutingShape& shape = problem_.shape;
    std::vector<simd::DistanceTerm> later;
    for (int64_t iteration = first_ + 1; iteration <= last_; ++iteration)
      later.push_back({.grad_sums = grad_sums(iteration),
                       .poses = poses_before(iteration),
                       .couplings = saved_ + trail_.couplings(iteration),
                       .distances = saved_ + trail_.distances(iteration),
                       .grad_logits = grad_logits(iteration),
                       .scales = saved_ + trail_.scales(iteration),
                       .grad_means = grad_means(iteration)});
    const Buffer grad_children(cut_.groups * cut_.child_floats);
    const simd::ClampedGradientStep step{
        .from = {.groups = cut_.groups,
                 .children_stride = cut_.child_floats,
                 .grad_sums = grad_sums(first_),
                 .sums_stride = cut_.pose_floats,
                 .couplings = first_ > 0 ? saved_ + trail_.couplings(first_) : nullptr,
                 .couplings_stride = cut_.coupling_floats,
                 .uniform = rule_.first_coupling},
        .later = later.data(),
        .later_count = static_cast<int64_t>(later.size()),
        .grad_children = grad_children.get(),
        .grad_weight = gradients.weight};
    for_each_chunk(cut_, simd::clamped_gradient_scratch_floats(shape, cut_.groups),
                   [&](int64_t chunk, float* scratch) {
                     simd::clamped_gradient(problem_.range(chunk, 0), step, scratch);
                   });
    if (gradients.children != nullptr)
      from_groups(cut_, shape.batch, shape.children * shape.child_dim, grad_children.get(),
                  gradients.children);
  }

  const Problem& problem_;
  const Cut& cut_;
  const RoutingRule& rule_;
  const float* saved_;
  Trail trail_;
  int64_t last_, first_;                                  ///< iterations with a gradient
  int64_t pose_floats_, coupling_floats_, image_floats_;  ///< of all groups
  Buffer grad_sums_, poses_, grad_logits_, grad_means_;
};

}  // namespace

void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients) {
  const Problem problem(shape, children, weight);
  DistanceBackward(problem, rule, saved).run(grad_poses, gradients);
}

}  // namespace remcaps::kernels::cpu
