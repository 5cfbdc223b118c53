#include "remcaps/kernels/routing/few_images.h"

#include <algorithm>
#include <bit>
#include <memory>
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
  FewImages(const RoutingShape& shape, const RoutingRule& rule, const float* children,
            const ChildMatrices& matrices, const float* bias)
      : shape_(shape),
        rule_(rule),
        children_(children),
        matrices_(matrices),
        bias_(bias),
        cut_(shape),
        votes_(shape.batch * cut_.groups * cut_.vote_floats),
        partial_(rule.iterations * partial_floats()) {}

  /// All iterations, on all threads. Writes the couplings of the last one, [B, I, J], if they are
  /// not null; poses [B, J, D_out].
  void run(float* poses, float* couplings) const {
    const int threads = thread_count();
    std::vector<std::unique_ptr<StageQueue>> iterations;
    for (int64_t iteration = 0; iteration < rule_.iterations; ++iteration)
      iterations.push_back(std::make_unique<StageQueue>(cut_.chunks, threads));
    run_on_threads(threads, [&](int thread) {
      Scratch scratch(*this);
      for (int64_t iteration = 0; iteration < rule_.iterations; ++iteration) {
        StageQueue& chunks = *iterations[static_cast<size_t>(iteration)];
        chunks.take(thread, [&](int64_t chunk) {
          add_chunk(chunk, iteration, scratch, is_last(iteration) ? couplings : nullptr);
        });
        if (is_last(iteration)) break;
        // Every thread computes the poses for itself, which takes less time than to wait for them.
        chunks.wait();
        squash(iteration, scratch.poses.get());
        for (int64_t x = 0; x < pose_floats(); ++x)
          scratch.agreed.get()[x] += scratch.poses.get()[x];
      }
    });
    squash(rule_.iterations - 1, poses);
  }

 private:
  // What a thread has for itself.
  struct Scratch {
    explicit Scratch(const FewImages& of)
        : sums(of.shape_.batch * of.cut_.vote_floats),
          lanes(std::max(of.shape_.batch * of.shape_.child_dim, of.shape_.parents) * of.cut_.lanes),
          poses(of.pose_floats()),
          agreed(of.pose_floats()),
          groups(static_cast<size_t>(of.shape_.batch)) {
      std::fill_n(agreed.get(), of.pose_floats(), 0.0F);
    }
    Buffer sums, lanes;
    Buffer poses, agreed;  ///< v_j, and their sum over the iterations so far
    std::vector<simd::ChildGroup> groups;
  };

  int64_t pose_floats() const { return shape_.batch * shape_.pose_size(); }
  int64_t partial_floats() const { return cut_.chunks * pose_floats(); }
  float* partial(int64_t iteration) const { return partial_.get() + iteration * partial_floats(); }
  bool is_last(int64_t iteration) const { return iteration + 1 == rule_.iterations; }

  // The sums of a chunk's children over all of its groups, of each image.
  void add_chunk(int64_t chunk, int64_t iteration, Scratch& scratch, float* couplings) const {
    const int64_t first = chunk * cut_.chunk, last = std::min(cut_.groups, first + cut_.chunk);
    for (int64_t g = first; g < last; ++g) {
      for (int64_t image = 0; image < shape_.batch; ++image)
        scratch.groups[static_cast<size_t>(image)] = {
            .shape = shape_,
            .votes = votes_.get() + (image * cut_.groups + g) * cut_.vote_floats,
            .sums = scratch.sums.get() + image * cut_.vote_floats,
            .fresh = g == first};
      if (iteration == 0)
        make(g, scratch);
      else
        route(g, is_last(iteration) ? rule_.levels : CouplingLevels{}, scratch, couplings);
    }
    for (int64_t image = 0; image < shape_.batch; ++image)
      simd::sum_lanes(shape_, scratch.sums.get() + image * cut_.vote_floats,
                      partial(iteration) + (chunk * shape_.batch + image) * shape_.pose_size());
  }

  // The first iteration: computes and keeps the votes.
  void make(int64_t g, Scratch& scratch) const {
    const int64_t first = g * cut_.lanes;
    const float* from = children_ + first * shape_.child_dim;
    float* lanes = scratch.lanes.get();
    for (simd::ChildGroup& group : scratch.groups) {
      turn(std::min(cut_.lanes, shape_.children - first), shape_.child_dim, cut_.lanes, from,
           lanes);
      group.weight = matrices_.group(g);
      group.masks = matrices_.masks(g);
      group.children = lanes;
      from += shape_.children * shape_.child_dim;
      lanes += shape_.child_dim * cut_.lanes;
    }
    simd::make_votes(scratch.groups);
  }

  // A later iteration.
  void route(int64_t g, const CouplingLevels& levels, Scratch& scratch, float* couplings) const {
    const int64_t first = g * cut_.lanes;
    const int64_t count = std::min(cut_.lanes, shape_.children - first);
    const float* agreed = scratch.agreed.get();
    float* lanes = scratch.lanes.get();
    for (const simd::ChildGroup& group : scratch.groups) {
      simd::route_group(group, agreed, levels, lanes);
      agreed += shape_.pose_size();
      if (couplings == nullptr) continue;
      float* to = couplings + first * shape_.parents;
      for (int64_t child = 0; child < count; ++child)
        for (int64_t j = 0; j < shape_.parents; ++j) *to++ = lanes[j * cut_.lanes + child];
      couplings += shape_.children * shape_.parents;
    }
  }

  // The end of an iteration: s_j = scale * (partial sums) + bias, v_j = squash(s_j).
  void squash(int64_t iteration, float* poses) const {
    const float scale = iteration == 0 ? rule_.first_coupling : 1.0F;
    const bool has_bias = bias_ != nullptr && (is_last(iteration) || rule_.bias_every_iteration);
    const int64_t size = shape_.pose_size(), stride = pose_floats();
    std::fill_n(poses, stride, 0.0F);
    for (int64_t chunk = 0; chunk < cut_.chunks; ++chunk)
      for (int64_t x = 0; x < stride; ++x) poses[x] += partial(iteration)[chunk * stride + x];
    for (int64_t x = 0; x < stride; ++x)
      poses[x] = scale * poses[x] + (has_bias ? bias_[x % size] : 0.0F);
    for (float* pose = poses; pose < poses + stride; pose += shape_.parent_dim) {
      float n2 = 0;
      for (int64_t d = 0; d < shape_.parent_dim; ++d) n2 += pose[d] * pose[d];
      const float factor = squash_factor(n2, rule_.epsilon);
      for (int64_t d = 0; d < shape_.parent_dim; ++d) pose[d] *= factor;
    }
  }

  RoutingShape shape_;
  const RoutingRule& rule_;
  const float* children_;
  const ChildMatrices& matrices_;
  const float* bias_;
  ChildCut cut_;
  Buffer votes_;    ///< u^_ij, [B, groups, J, D_out, L]
  Buffer partial_;  ///< [iterations, chunks, B, J, D_out]
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
  packed_ = Buffer(count + lanes);  // whole registers are read
  std::fill_n(packed_.get() + count, lanes, 0.0F);
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
  FewImages(shape, rule, children, matrices, bias).run(poses, couplings);
  if (rule.iterations == 1 && couplings != nullptr)
    std::fill_n(couplings, shape.batch * shape.children * shape.parents, rule.first_coupling);
}

}  // namespace remcaps::kernels::cpu
