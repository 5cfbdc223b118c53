#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/routing/conv3d_routing.h"
#include "remcaps/kernels/routing/dynamic_routing.h"
#include "remcaps/kernels/routing/few_images.h"
#include "remcaps/kernels/routing/scaled_distance.h"
#include "remcaps/kernels/routing/self_attention.h"
#include "remcaps/runtime/compact.h"
#include "remcaps/runtime/matrices.h"

namespace remcaps::runtime {
namespace {

using kernels::CouplingLevels;
using kernels::RoutingRule;
using kernels::RoutingShape;

// The largest share of weights with which matrices without zeros are faster.
constexpr double kSparseMatrices = 0.5;

class RoutingOperation : public Operation {
 public:
  explicit RoutingOperation(const RoutingPlace& place) : place_(place) {}

 protected:
  CouplingLevels levels(const Pass& pass) const {
    return pass.quantize && place_.levels != nullptr ? place_.levels->levels() : CouplingLevels{};
  }
  // Room for the couplings of a batch, behind those that are there; null: not wanted. Keeps the
  // lengths of the children, too.
  float* room(Pass& pass, const Value& children) const {
    if (!pass.couplings) return nullptr;
    if (!children.shape.is_map() && (!kept_.empty() || children.shape.count == routing->children))
      keep_lengths(children, pass.child_lengths[place_.index]);
    std::vector<float>& layer = pass.layers[place_.index];
    const size_t before = layer.size();
    layer.resize(before + static_cast<size_t>(children.batch * routing->positions *
                                              routing->children * routing->parents));
    return layer.data() + before;
  }

  // The child of a compact network that is number n of those that are kept.
  int64_t place_of(int64_t n) const { return kept_.empty() ? n : kept_[static_cast<size_t>(n)]; }

  std::vector<int64_t> kept_;  ///< of a compact network that has lost some; the others are 0

 private:
  void keep_lengths(const Value& children, std::vector<float>& lengths) const {
    const int64_t dim = children.shape.dim, count = children.shape.count;
    const float* pose = children.data.get();
    for (int64_t image = 0; image < children.batch; ++image) {
      const size_t first = lengths.size();
      lengths.resize(first + static_cast<size_t>(routing->children));
      for (int64_t n = 0; n < count; ++n, pose += dim)
        lengths[first + static_cast<size_t>(place_of(n))] =
            std::sqrt(std::inner_product(pose, pose + dim, pose, 0.0F));
    }
  }

  RoutingPlace place_;
};

class IteratedOperation final : public RoutingOperation {
 public:
  // `fixed`, [I, J] or empty: couplings that are the same for all images, in place of iterations.
  IteratedOperation(const RoutingPlace& place, Matrices matrices, const RoutingRule& rule,
                    std::vector<int64_t> kept, std::vector<float> fixed)
      : RoutingOperation(place),
        matrices_(std::move(matrices)),
        rule_(rule),
        fixed_(std::move(fixed)) {
    kept_ = std::move(kept);
    if (!fixed_.empty()) {  // the first iteration couples all with 1/J
      std::vector<float> factors = fixed_;
      for (float& factor : factors) factor *= static_cast<float>(matrices_.shape.parents);
      matrices_.scale(factors);
      rule_.iterations = 1;
    }
    if (matrices_.left) {
      packed_.emplace(matrices_.shape, matrices_.left->places, matrices_.left->values);
      matrices_.left.reset();
    } else if (rule.agreement == kernels::Agreement::kProduct) {
      packed_.emplace(matrices_.shape, matrices_.weight.data());
    }
    wants_batches = !packed_ || !packed_->is_sparse();
  }

  Value run(std::vector<Input>& inputs, Pass& pass) const override {
    const Value& children = *inputs[0].value;
    Value poses = Value::make(shape, children.batch);
    const RoutingShape problem = matrices_.for_batch(children.batch);
    const RoutingRule rule =
        with_levels(rule_, fixed_.empty() ? levels(pass) : CouplingLevels{}, problem.parents);
    float* all = room(pass, children);
    const kernels::Buffer of_kept(
        kept_.empty() || all == nullptr ? 0 : problem.batch * problem.children * problem.parents);
    float* couplings = kept_.empty() || all == nullptr ? all : of_kept.get();
    if (!packed_)
      kernels::cpu::scaled_distance_forward(problem, rule, children.data.get(),
                                            matrices_.weight.data(), matrices_.bias_or_null(),
                                            poses.data.get(), couplings, nullptr);
    else if (packed_->is_sparse() || children.batch <= kernels::cpu::most_few_images())
      route_few(problem, rule, children.data.get(), poses.data.get(), couplings);
    else
      kernels::cpu::dynamic_routing_forward(problem, rule, children.data.get(),
                                            matrices_.weight.data(), matrices_.bias_or_null(),
                                            poses.data.get(), couplings, nullptr);
    if (couplings != nullptr)
      for (int64_t image = 0; image < problem.batch && !fixed_.empty(); ++image)
        std::copy(fixed_.begin(), fixed_.end(),
                  couplings + image * static_cast<int64_t>(fixed_.size()));
    if (couplings != all) spread(problem, levels(pass), couplings, all);
    return poses;
  }

  Evidence evidence_below(const Value& children, int64_t image, const float* couplings,
                          const ParentEvidence& from) const override {
    const float* poses = children.data.get() + image * children.shape.floats();
    const int64_t count = children.shape.count, parents = matrices_.shape.parents;
    std::vector<float> of_kept;
    if (!fixed_.empty())  // these are in the matrices
      of_kept.assign(fixed_.size(), 1.0F / static_cast<float>(parents));
    for (int64_t n = 0; n < count && !kept_.empty() && fixed_.empty(); ++n)
      of_kept.insert(of_kept.end(), couplings + place_of(n) * parents,
                     couplings + (place_of(n) + 1) * parents);
    const RoutedCapsules routed{matrices_.shape, of_kept.empty() ? couplings : of_kept.data(),
                                matrices_.bias_or_null(), [&](int64_t parent, float* votes) {
                                  if (packed_)
                                    packed_->votes_for(parent, poses, votes);
                                  else
                                    dense_votes(
                                        matrices_.shape, matrices_.weight.data(), poses, parent,
                                        rule_.agreement != kernels::Agreement::kProduct, votes);
                                }};
    std::vector<double> of_child(static_cast<size_t>(count));
    Evidence below;
    share_out(routed, from, 0, 1, of_child.data(), below.bias);
    below.capsules.resize(static_cast<size_t>(routing->children));
    for (int64_t n = 0; n < count; ++n)
      below.capsules[static_cast<size_t>(place_of(n))] = of_child[static_cast<size_t>(n)];
    return below;
  }

 private:
  // Without zeros as many images at a time as share the work of reading the matrices: their votes
  // stay in the cache.
  void route_few(const RoutingShape& all, const RoutingRule& rule, const float* children,
                 float* poses, float* couplings) const {
    const int64_t most = packed_->is_sparse() ? kernels::simd::kVotesTogether : all.batch;
    RoutingShape some = all;
    for (int64_t first = 0; first < all.batch; first += some.batch) {
      some.batch = std::min(most, all.batch - first);
      const int64_t pairs = all.children * all.parents;
      kernels::cpu::few_images_forward(some, rule, children + first * all.children * all.child_dim,
                                       *packed_, matrices_.bias_or_null(),
                                       poses + first * all.pose_size(),
                                       couplings == nullptr ? nullptr : couplings + first * pairs);
    }
  }

  // Couplings of the kept children [B, I', J] -> [B, I, J]. A capsule that was removed never agreed
  // with any parent.
  void spread(const RoutingShape& problem, const CouplingLevels& levels, const float* of_kept,
              float* all) const {
    const int64_t parents = problem.parents, size = routing->children * parents;
    float even = 1.0F / static_cast<float>(parents);
    if (levels.count > 0) even = kernels::rounded(levels, even);
    std::fill_n(all, problem.batch * size, even);
    for (int64_t image = 0; image < problem.batch; ++image, all += size)
      for (const int64_t child : kept_) {
        std::copy_n(of_kept, parents, all + child * parents);
        of_kept += parents;
      }
  }

  Matrices matrices_;
  RoutingRule rule_;
  std::vector<float> fixed_;
  std::optional<kernels::cpu::ChildMatrices> packed_;
};

class AttentionOperation final : public RoutingOperation {
 public:
  AttentionOperation(const RoutingPlace& place, Matrices matrices,
                     const kernels::cpu::AttentionRule& rule)
      : RoutingOperation(place), matrices_(std::move(matrices)), rule_(rule) {}

  Value run(std::vector<Input>& inputs, Pass& pass) const override {
    const Value& children = *inputs[0].value;
    Value poses = Value::make(shape, children.batch);
    kernels::cpu::AttentionRule rule = rule_;
    rule.levels = levels(pass);
    kernels::cpu::self_attention_forward(
        matrices_.for_batch(children.batch), rule, children.data.get(), matrices_.weight.data(),
        matrices_.bias.data(), poses.data.get(), room(pass, children));
    return poses;
  }

  Evidence evidence_below(const Value& children, int64_t image, const float* couplings,
                          const ParentEvidence& from) const override {
    const float* poses = children.data.get() + image * children.shape.floats();
    std::vector<float> weights(couplings, couplings + matrices_.bias.size());
    for (size_t k = 0; k < weights.size() && rule_.exact_prior; ++k)
      weights[k] += matrices_.bias[k];
    const RoutedCapsules routed{
        matrices_.shape, weights.data(), nullptr, [&](int64_t parent, float* votes) {
          dense_votes(matrices_.shape, matrices_.weight.data(), poses, parent, false, votes);
        }};
    Evidence below{std::vector<double>(static_cast<size_t>(children.shape.count))};
    share_out(routed, from, 0, 1, below.capsules.data(), below.bias);
    return below;
  }

 private:
  Matrices matrices_;
  kernels::cpu::AttentionRule rule_;
};

// The windows of a map of capsules.
struct Windows {
  int64_t types = 0, height = 0, width = 0, dim = 0, kernel = 0, stride = 0;

  int64_t rows() const { return (height - kernel) / stride + 1; }
  int64_t columns() const { return (width - kernel) / stride + 1; }
  int64_t positions() const { return rows() * columns(); }
  int64_t places() const { return types * kernel * kernel; }

  // The rows of all windows, [P, T, k]: visit(the first of the k children of a row).
  template <typename Visit>
  void for_each_row(const Visit& visit) const {
    for (int64_t y = 0; y < rows(); ++y)
      for (int64_t x = 0; x < columns(); ++x)
        for (int64_t type = 0; type < types; ++type)
          for (int64_t ky = 0; ky < kernel; ++ky)
            visit((type * height + y * stride + ky) * width + x * stride);
  }

  // children [T, H, W, D] of an image -> [P, T, k, k, D]
  void gather(const float* children, float* to) const {
    float* next = to;
    for_each_row(
        [&](int64_t first) { next = std::copy_n(children + first * dim, kernel * dim, next); });
  }
};

class WindowOperation final : public RoutingOperation {
 public:
  WindowOperation(const RoutingPlace& place, Matrices matrices, const RoutingRule& rule,
                  const Windows& windows)
      : RoutingOperation(place), matrices_(std::move(matrices)), rule_(rule), windows_(windows) {}

  Value run(std::vector<Input>& inputs, Pass& pass) const override {
    const Value& children = *inputs[0].value;
    const int64_t positions = windows_.positions(), places = windows_.places();
    const RoutingShape problem = matrices_.for_batch(children.batch * positions);
    const kernels::Buffer gathered(problem.batch * places * windows_.dim);
    const kernels::Buffer routed(problem.batch * problem.pose_size());
    parallel_for(0, children.batch, /*grain=*/1, [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image)
        windows_.gather(children.data.get() + image * children.shape.floats(),
                        gathered.get() + image * positions * places * windows_.dim);
    });
    kernels::cpu::dynamic_routing_forward(
        problem, with_levels(rule_, levels(pass), problem.parents), gathered.get(),
        matrices_.weight.data(), matrices_.bias_or_null(), routed.get(), room(pass, children),
        nullptr);
    // [P, J, D] -> [J, P, D]: the types come first.
    Value poses = Value::make(shape, children.batch);
    float* to = poses.data.get();
    for (int64_t image = 0; image < children.batch; ++image)
      for (int64_t j = 0; j < problem.parents; ++j)
        for (int64_t p = 0; p < positions; ++p)
          to = std::copy_n(
              routed.get() + ((image * positions + p) * problem.parents + j) * problem.parent_dim,
              problem.parent_dim, to);
    return poses;
  }

  Evidence evidence_below(const Value& children, int64_t image, const float* couplings,
                          const ParentEvidence& from) const override {
    const int64_t positions = windows_.positions(), places = windows_.places();
    const kernels::Buffer gathered(positions * places * windows_.dim);
    windows_.gather(children.data.get() + image * children.shape.floats(), gathered.get());
    std::vector<double> of_place(static_cast<size_t>(positions * places));
    Evidence below{std::vector<double>(static_cast<size_t>(children.shape.count))};
    for (int64_t p = 0; p < positions; ++p) {
      const float* poses = gathered.get() + p * places * windows_.dim;
      const RoutedCapsules routed{matrices_.shape, couplings + p * places * matrices_.shape.parents,
                                  matrices_.bias_or_null(), [&](int64_t parent, float* votes) {
                                    dense_votes(matrices_.shape, matrices_.weight.data(), poses,
                                                parent, false, votes);
                                  }};
      share_out(routed, from, p, positions, of_place.data() + p * places, below.bias);
    }
    const double* value = of_place.data();
    windows_.for_each_row([&](int64_t first) {
      for (int64_t child = first; child < first + windows_.kernel; ++child)
        below.capsules[static_cast<size_t>(child)] += *value++;
    });
    return below;
  }

 private:
  Matrices matrices_;
  RoutingRule rule_;
  Windows windows_;
};

class Conv3dOperation final : public RoutingOperation {
 public:
  Conv3dOperation(const RoutingPlace& place, const kernels::cpu::Conv3dShape& problem,
                  const kernels::cpu::Conv3dRule& rule, std::vector<float> weight,
                  std::vector<float> vote_bias, std::vector<float> bias)
      : RoutingOperation(place),
        problem_(problem),
        rule_(rule),
        weight_(std::move(weight)),
        vote_bias_(std::move(vote_bias)),
        bias_(std::move(bias)) {}

  Value run(std::vector<Input>& inputs, Pass& pass) const override {
    const Value& map = *inputs[0].value;
    Value poses = Value::make(shape, map.batch);
    kernels::cpu::Conv3dShape problem = problem_;
    problem.batch = map.batch;
    kernels::cpu::Conv3dRule rule = rule_;
    rule.levels = levels(pass);
    kernels::cpu::conv3d_routing_forward(problem, rule, map.strides, map.data.get(), weight_.data(),
                                         vote_bias_.empty() ? nullptr : vote_bias_.data(),
                                         bias_.empty() ? nullptr : bias_.data(), poses.data.get(),
                                         room(pass, map));
    return poses;
  }

 private:
  kernels::cpu::Conv3dShape problem_;
  kernels::cpu::Conv3dRule rule_;
  std::vector<float> weight_, vote_bias_, bias_;
};

std::unique_ptr<Operation> fully_connected(const NodeReader& reader, const RoutingPlace& place) {
  const ValueShape children = reader.capsules();
  const bool sparse =
      reader.node().op == "dynamic_routing" && kernels::cpu::reads_sparse_matrices();
  Matrices matrices =
      read_matrices(reader, children.count, children.dim, sparse ? kSparseMatrices : 0);
  RoutingInfo info{1, children.count, matrices.shape.parents};
  const ValueShape shape = ValueShape::capsules(matrices.shape.parents, matrices.shape.parent_dim);
  std::unique_ptr<Operation> operation;
  if (reader.node().op == "self_attention_routing") {
    matrices.bias =
        reader.weights().read(reader.node(), "bias", {children.count, matrices.shape.parents});
    const kernels::cpu::AttentionRule rule{
        .form = reader.squash_form(),
        .epsilon = reader.real("epsilon", 0, 1),
        .self = reader.word("agreement", {"all", "self"}, "all") == "self",
        .exact_prior = reader.word("prior", {"rounded", "exact"}, "rounded") == "exact",
        .levels = {}};
    operation = std::make_unique<AttentionOperation>(place, std::move(matrices), rule);
  } else {
    read_bias(reader, matrices);
    const RoutingRule rule = read_rule(reader, reader.node().op == "dynamic_routing"
                                                   ? kernels::Agreement::kProduct
                                                   : kernels::Agreement::kImageDistance);
    std::vector<int64_t> kept;
    if (reader.has_word("kept")) {
      info.children = reader.integer("children", children.count, 1 << 24);
      kept = parse_kept(reader.node().words.at("kept"), info.children, reader.weights().source());
      reader.require(static_cast<int64_t>(kept.size()) == children.count,
                     "it keeps another number of capsules");
      info.kept = kept;
      reader.checked(ValueShape::capsules(info.children, matrices.shape.parents));
    }
    std::vector<float> fixed = reader.weights().read_if_there(
        reader.node(), "coupling", {children.count, matrices.shape.parents});
    reader.require(fixed.empty() || rule.agreement == kernels::Agreement::kProduct,
                   "couplings are fixed for dynamic routing only");
    operation = std::make_unique<IteratedOperation>(place, std::move(matrices), rule,
                                                    std::move(kept), std::move(fixed));
  }
  operation->shape = reader.checked(shape);
  operation->routing = info;
  return operation;
}

std::unique_ptr<Operation> window(const NodeReader& reader, const RoutingPlace& place) {
  const ValueShape children = reader.capsules();
  constexpr int64_t kMost = 1 << 16;
  const Windows windows{.types = reader.integer("types", 1, kMost),
                        .height = reader.integer("height", 1, kMost),
                        .width = reader.integer("width", 1, kMost),
                        .dim = children.dim,
                        .kernel = reader.integer("kernel", 1, 1024),
                        .stride = reader.integer("stride", 1, 1024)};
  reader.require(windows.types * windows.height * windows.width == children.count &&
                     windows.kernel <= std::min(windows.height, windows.width),
                 "its windows do not fit the children");
  Matrices matrices = read_matrices(reader, windows.places(), children.dim);
  read_bias(reader, matrices);
  const RoutingInfo info{windows.positions(), windows.places(), matrices.shape.parents};
  reader.require(info.positions > 1 || info.children == children.count,
                 "its only window does not cover the map");
  reader.checked(ValueShape::capsules(info.positions * info.children, children.dim));
  reader.checked(ValueShape::capsules(info.positions * info.children, info.parents));
  const ValueShape shape =
      ValueShape::capsules(info.positions * matrices.shape.parents, matrices.shape.parent_dim);
  auto operation = std::make_unique<WindowOperation>(
      place, std::move(matrices), read_rule(reader, kernels::Agreement::kProduct), windows);
  operation->shape = reader.checked(shape);
  operation->routing = info;
  operation->window = {windows.kernel, windows.kernel, windows.stride, windows.stride};
  operation->places = {0, info.parents, windows.rows(), windows.columns(), true, {}};
  return operation;
}

std::unique_ptr<Operation> conv3d(const NodeReader& reader, const RoutingPlace& place) {
  const ValueShape map = reader.map();
  FloatTensor weight = reader.weights().read(reader.node(), "weight");
  const int64_t dim = reader.integer("dim", 1, 1 << 16);
  const std::vector<int64_t>& size = weight.shape;
  reader.require(size.size() == 5 && size[0] >= dim && size[0] % dim == 0 && size[1] == 1 &&
                     size[2] >= 1 && size[2] <= dim && size[3] == 3 && size[4] == 3 &&
                     map.channels % dim == 0,
                 "its weight does not fit the map");
  const kernels::cpu::Conv3dShape problem{.height = map.height,
                                          .width = map.width,
                                          .types = map.channels / dim,
                                          .child_dim = dim,
                                          .parents = size[0] / dim,
                                          .parent_dim = dim,
                                          .depth = size[2]};
  const kernels::cpu::Conv3dRule rule{
      .iterations = reader.integer("iterations", 1, kMaxIterations),
      .epsilon = reader.real("epsilon", 0, 1),
      .squash_map = reader.word("squash_over", {"atoms", "map"}) == "map",
      .levels = {}};
  const RoutingInfo info{problem.places(), problem.types, problem.parents};
  const int64_t channels = size[0];
  reader.checked(ValueShape::capsules(info.positions * info.children, channels));
  auto operation = std::make_unique<Conv3dOperation>(
      place, problem, rule, std::move(weight.values),
      reader.weights().read_if_there(reader.node(), "vote_bias", {channels}),
      reader.weights().read_if_there(reader.node(), "bias", {problem.parents, dim}));
  operation->shape = reader.checked(ValueShape::map(channels, map.height, map.width));
  operation->routing = info;
  operation->window = {3, 3, 1, 1, 1, 1};
  return operation;
}

}  // namespace

std::unique_ptr<Operation> make_routing(const NodeReader& reader, const RoutingPlace& place) {
  const std::string& op = reader.node().op;
  if (op == "window_routing") return window(reader, place);
  if (op == "conv3d_routing") return conv3d(reader, place);
  if (op == "dynamic_routing" || op == "scaled_distance_routing" || op == "self_attention_routing")
    return fully_connected(reader, place);
  return nullptr;
}

}  // namespace remcaps::runtime
