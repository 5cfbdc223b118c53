#include "remcaps/kernels/routing/few_images.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "remcaps/kernels/formulas.h"
#include "remcaps/kernels/routing/steps.h"

namespace remcaps::kernels::cpu {
namespace {

// [rows, size] -> [size, L], with zeros in the lanes from `rows` on.
void turn(int64_t rows, int64_t size, int64_t lanes, const float* from, float* to) {
  for (int64_t x = 0; x < size; ++x, to += lanes) {
    for (int64_t lane = 0; lane < rows; ++lane) to[lane] = from[lane * size + x];
    std::fill(to + rows, to + lanes, 0.0F);
  }
}

// How a layer is cut up: groups of one child per lane, and chunks of groups whose sums are added up
// together. The cut depends on the shape alone.
struct ChildCut {
  explicit ChildCut(const RoutingShape& shape)
      : lanes(simd::lane_count()),
        groups(pieces_of(shape.children, lanes)),
        chunk(pieces_of(groups, 16)),
        chunks(pieces_of(groups, chunk)),
        vote_floats(shape.pose_size() * lanes) {}

  int64_t lanes, groups, chunk, chunks;
  int64_t vote_floats;  ///< of one group's votes
};

class FewImages {
 public:
  FewImages(const RoutingShape& shape, const RoutingRule& rule, const ChildMatrices& matrices)
      : shape_(shape),
        rule_(rule),
        matrices_(matrices),
        cut_(shape),
        votes_(shape.batch * cut_.groups * cut_.vote_floats),
        partial_(cut_.chunks * shape.batch * shape.pose_size()),
        agreed_(shape.batch * shape.pose_size()) {
    std::fill_n(agreed_.get(), shape.batch * shape.pose_size(), 0.0F);
  }

  /// The first iteration: computes and keeps the votes, and sums them chunk by chunk.
  void make(const float* children) const {
    for_each_group([&](int64_t g, std::span<simd::ChildGroup> groups, float* scratch) {
      const int64_t first = g * cut_.lanes;
      const float* from = children + first * shape_.child_dim;
      for (simd::ChildGroup& group : groups) {
        turn(std::min(cut_.lanes, shape_.children - first), shape_.child_dim, cut_.lanes, from,
             scratch);
        group.weight = matrices_.group(g);
        group.masks = matrices_.masks(g);
        group.children = scratch;
        from += shape_.children * shape_.child_dim;
        scratch += shape_.child_dim * cut_.lanes;
      }
      simd::make_votes(groups);
    });
  }

  /// A later iteration. Writes its couplings [B, I, J] if they are not null.
  void route(const CouplingLevels& levels, float* couplings) const {
    for_each_group([&](int64_t g, std::span<const simd::ChildGroup> groups, float* scratch) {
      const int64_t first = g * cut_.lanes;
      const int64_t count = std::min(cut_.lanes, shape_.children - first);
      const float* agreed = agreed_.get();
      float* all = couplings;
      for (const simd::ChildGroup& group : groups) {
        simd::route_group(group, agreed, levels, scratch);
        agreed += shape_.pose_size();
        if (couplings == nullptr) continue;
        float* to = all + first * shape_.parents;
        for (int64_t child = 0; child < count; ++child)
          for (int64_t j = 0; j < shape_.parents; ++j) *to++ = scratch[j * cut_.lanes + child];
        all += shape_.children * shape_.parents;
      }
    });
  }

  /// The end of an iteration: s_j = scale * (partial sums) + bias, v_j = squash(s_j).
  void squash(float scale, const float* bias, float* poses) const {
    const int64_t size = shape_.pose_size(), stride = shape_.batch * size;
    for (int64_t x = 0; x < stride; ++x) {
      float sum = 0;
      for (int64_t chunk = 0; chunk < cut_.chunks; ++chunk)
        sum += partial_.get()[chunk * stride + x];
      poses[x] = scale * sum + (bias == nullptr ? 0.0F : bias[x % size]);
    }
    for (float* pose = poses; pose < poses + stride; pose += shape_.parent_dim) {
      float n2 = 0;
      for (int64_t d = 0; d < shape_.parent_dim; ++d) n2 += pose[d] * pose[d];
      const float factor = squash_factor(n2, rule_.epsilon);
      for (int64_t d = 0; d < shape_.parent_dim; ++d) pose[d] *= factor;
    }
    for (int64_t x = 0; x < stride; ++x) agreed_.get()[x] += poses[x];
  }

 private:
  // Calls work(g, groups, scratch) for every group g of children, on all threads: `groups` has one
  // for each image, with votes and sums set. The sums of each chunk go to partial_.
  template <typename Work>
  void for_each_group(const Work& work) const {
    const int64_t sums_floats = shape_.batch * cut_.vote_floats;
    TaskQueue chunks(cut_.chunks);
    on_every_thread([&] {
      const Buffer sums(sums_floats);
      const Buffer scratch(std::max(shape_.batch * shape_.child_dim, shape_.parents) * cut_.lanes);
      std::vector<simd::ChildGroup> groups(static_cast<size_t>(shape_.batch));
      while (const auto chunk = chunks.next()) {
        std::fill_n(sums.get(), sums_floats, 0.0F);
        const int64_t last = std::min(cut_.groups, (*chunk + 1) * cut_.chunk);
        for (int64_t g = *chunk * cut_.chunk; g < last; ++g) {
          for (int64_t image = 0; image < shape_.batch; ++image)
            groups[static_cast<size_t>(image)] = {
                .shape = shape_,
                .votes = votes_.get() + (image * cut_.groups + g) * cut_.vote_floats,
                .sums = sums.get() + image * cut_.vote_floats};
          work(g, groups, scratch.get());
        }
        for (int64_t image = 0; image < shape_.batch; ++image)
          simd::sum_lanes(shape_, sums.get() + image * cut_.vote_floats,
                          partial_.get() + (*chunk * shape_.batch + image) * shape_.pose_size());
      }
    });
  }

  RoutingShape shape_;
  const RoutingRule& rule_;
  const ChildMatrices& matrices_;
  ChildCut cut_;
  Buffer votes_;    ///< u^_ij, [B, groups, J, D_out, L]
  Buffer partial_;  ///< [chunks, B, J, D_out]
  Buffer agreed_;   ///< the sum of v_j so far, [B, J, D_out]
};

}  // namespace

int64_t most_few_images() {
  return std::max<int64_t>(1, simd::lane_count() / 2 - 1);
}

ChildMatrices::ChildMatrices(const RoutingShape& shape, const float* weight)
    : shape_(shape), group_floats_(shape.pose_size() * shape.child_dim * simd::lane_count()) {
  const ChildCut cut(shape);
  const int64_t size = shape.pose_size() * shape.child_dim;
  packed_ = Buffer(cut.groups * group_floats_);
  for (int64_t g = 0; g < cut.groups; ++g) {
    const int64_t first = g * cut.lanes;
    turn(std::min(cut.lanes, shape.children - first), size, cut.lanes, weight + first * size,
         packed_.get() + g * group_floats_);
  }
}

bool reads_sparse_matrices() {
  return simd::expanded_lanes() > 0;
}

ChildMatrices::ChildMatrices(const RoutingShape& shape, std::span<const uint32_t> places,
                             std::span<const float> values)
    : shape_(shape), group_floats_(shape.pose_size() * shape.child_dim * simd::lane_count()) {
  const ChildCut cut(shape);
  const int64_t lanes = simd::expanded_lanes(), size = shape.pose_size() * shape.child_dim;
  group_masks_ = group_floats_ / lanes;
  masks_.resize(static_cast<size_t>(cut.groups * group_masks_));
  // Where a weight stands among all registers of all groups, and in which lane.
  const auto slot_of = [&](int64_t place) {
    const int64_t child = place / size, in_group = child % cut.lanes;
    const int64_t register_of =
        (child / cut.lanes * size + place % size) * (cut.lanes / lanes) + in_group / lanes;
    return std::pair(register_of, in_group % lanes);
  };
  for (const uint32_t place : places) {
    const auto [slot, lane] = slot_of(place);
    masks_[static_cast<size_t>(slot)] |= static_cast<uint16_t>(1U << lane);
  }
  std::vector<int64_t> next(masks_.size());  // where the values of each register begin
  int64_t count = 0;
  for (size_t slot = 0; slot < masks_.size(); ++slot) {
    if (slot % static_cast<size_t>(group_masks_) == 0) begins_.push_back(count);
    next[slot] = count;
    count += std::popcount(masks_[slot]);
  }
  packed_ = Buffer(count);
  // Children are ascending, and with them the lanes of a register.
  for (size_t n = 0; n < places.size(); ++n)
    packed_.get()[next[static_cast<size_t>(slot_of(places[n]).first)]++] = values[n];
}

void ChildMatrices::votes_for(int64_t parent, const float* children, float* votes) const {
  const int64_t group_lanes = simd::lane_count();
  // A mask has 16 bits.
  const int64_t lanes = is_sparse() ? simd::expanded_lanes() : std::min<int64_t>(16, group_lanes);
  const int64_t registers = group_lanes / lanes;
  const int64_t dim = shape_.parent_dim, child_dim = shape_.child_dim;
  const int64_t size = registers * dim * child_dim;  // registers of one parent in a group
  std::fill_n(votes, shape_.children * dim, 0.0F);
  for (int64_t g = 0; g * group_lanes < shape_.children; ++g) {
    const float* weight = group(g);
    const uint16_t* left = masks(g);
    const unsigned all = (1U << lanes) - 1;
    for (int64_t r = 0; r < parent * size; ++r)  // those of the parents before
      weight += left == nullptr ? lanes : std::popcount(left[r]);
    for (int64_t r = 0; r < size; ++r) {
      const int64_t place = r / registers;  // [D_out, D_in]
      const int64_t first = g * group_lanes + r % registers * lanes;
      for (unsigned mask = left == nullptr ? all : left[parent * size + r]; mask != 0;
           mask &= mask - 1, ++weight) {
        const int64_t child = first + std::countr_zero(mask);
        if (child < shape_.children)
          votes[child * dim + place / child_dim] +=
              *weight * children[child * child_dim + place % child_dim];
      }
    }
  }
}

void few_images_forward(const RoutingShape& shape, const RoutingRule& rule, const float* children,
                        const ChildMatrices& matrices, const float* bias, float* poses,
                        float* couplings) {
  const FewImages images(shape, rule, matrices);
  const int64_t last = rule.iterations - 1;
  for (int64_t iteration = 0; iteration <= last; ++iteration) {
    const bool is_last = iteration == last;
    if (iteration == 0)
      images.make(children);
    else
      images.route(is_last ? rule.levels : CouplingLevels{}, is_last ? couplings : nullptr);
    images.squash(iteration == 0 ? rule.first_coupling : 1.0F,
                  is_last || rule.bias_every_iteration ? bias : nullptr, poses);
  }
  if (last == 0 && couplings != nullptr)
    std::fill_n(couplings, shape.batch * shape.children * shape.parents, rule.first_coupling);
}

}  // namespace remcaps::kernels::cpu
