#include <cmath>
#include <limits>

#include "remcaps/onnx/operations.h"

namespace remcaps::onnx_export {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

// Each coupling becomes the centre of its level: the number of edges below it chooses the centre.
std::string rounded(Builder& builder, const std::string& couplings, const Quantizer* levels) {
  if (levels == nullptr) return couplings;
  const std::vector<float>& edges = levels->inner_edges();
  const std::string above =
      builder.node("Greater", {builder.node("Unsqueeze", {couplings, builder.integers({-1})}),
                               builder.constant({static_cast<int64_t>(edges.size())}, edges)});
  const std::string ones =
      builder.node("Cast", {above}, {{"to", int64_t{onnx::TensorProto::INT32}}});
  return builder.node("Gather", {builder.constant({levels->levels()}, levels->centres()),
                                 builder.sum(ones, -1, /*keep=*/false)});
}

// A constant of shape [1, ...] for every image of the batch of `like`.
std::string for_each_image(Builder& builder, const std::string& like, std::vector<int64_t> shape,
                           float value) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const std::string images = builder.slice(builder.node("Shape", {like}), 0, 1);
  const std::string whole =
      builder.node("Concat", {images, builder.integers(shape)}, {{"axis", int64_t{0}}});
  shape.insert(shape.begin(), 1);
  return builder.node("Expand", {builder.constant(shape, std::vector<float>(count, value)), whole});
}

// A fully connected layer. Votes are [B, J, I, D], couplings [B, J, I]: sums over the children and
// agreements are then matrix products.
class Connected {
 public:
  Connected(Builder& builder, const Source& source, const Quantizer* levels)
      : builder_(builder), reader_(source.reader), levels_(levels) {
    children_ = source.routing.children;
    parents_ = source.routing.parents;
  }

  // children [B, I, K]
  Routed route(const std::string& children) {
    votes_ = make_votes(children);
    const std::string& op = reader_.node().op;
    if (op == "self_attention_routing") return attend();
    distances_ = op == "scaled_distance_routing";
    if (distances_) shorten_votes(children);
    return iterate();
  }
  int64_t dim() const { return dim_; }

 private:
  // W is shared by `shared` children that follow each other.
  std::string make_votes(const std::string& children) {
    const FloatTensor weight = reader_.weights().read(reader_.node(), "weight");
    const int64_t groups = weight.shape[0], size = weight.shape[3], shared = children_ / groups;
    dim_ = weight.shape[2];
    const int64_t rows = parents_ * dim_;
    std::vector<float> turned(weight.values.size());  // [G, K, J * D]
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t k = 0; k < size; ++k)
          turned[(g * size + k) * rows + row] = weight.values[(g * rows + row) * size + k];
    const std::string grouped =
        builder_.transpose(builder_.reshape(children, {-1, groups, shared, size}), {1, 0, 2, 3});
    const std::string products =
        builder_.node("MatMul", {builder_.reshape(grouped, {groups, -1, size}),
                                 builder_.constant({groups, size, rows}, turned)});
    const std::string votes = builder_.transpose(
        builder_.reshape(products, {groups, -1, shared, parents_, dim_}), {1, 3, 0, 2, 4});
    return builder_.reshape(votes, {0, parents_, children_, dim_});
  }

  // A vote of scaled-distance routing is not longer than its child.
  void shorten_votes(const std::string& children) {
    const std::string vote2 = builder_.squares(votes_, {3}, /*keep=*/true);
    const std::string child2 =
        builder_.reshape(builder_.squares(children, {2}, false), {-1, 1, children_, 1});
    const std::string safe =
        builder_.node("Max", {vote2, builder_.constant(std::numeric_limits<float>::min())});
    const std::string shrunk = builder_.node("Sqrt", {builder_.node("Div", {child2, safe})});
    const std::string factor = builder_.node(
        "Where", {builder_.node("Greater", {vote2, child2}), shrunk, builder_.constant(1.0F)});
    votes_ = builder_.node("Mul", {votes_, factor});
  }

  Routed iterate() {
    const int64_t iterations = reader_.integer("iterations", 1, kLargest);
    const bool every = reader_.integer("bias_every_iteration", 0, 1) == 1;
    std::string couplings, logits;
    for (int64_t iteration = 1;; ++iteration) {
      const bool last = iteration == iterations;
      if (iteration == 1)
        couplings = for_each_image(builder_, votes_, {parents_, children_},
                                   1.0F / static_cast<float>(parents_));
      else
        couplings = builder_.node("Softmax", {logits}, {{"axis", int64_t{1}}});
      if (last) couplings = rounded(builder_, couplings, levels_);
      std::string sum = weighted_sum(couplings);
      if (reader_.node().tensors.contains("bias") && (every || last)) {
        const FloatTensor bias = reader_.weights().read(reader_.node(), "bias");
        sum = builder_.node("Add", {sum, builder_.constant(bias.shape, bias.values)});
      }
      const std::string poses =
          squash(builder_, sum, {2}, kernels::SquashForm::kNorm, reader_.real("epsilon", 0, 1));
      if (last) return {poses, by_child(couplings)};
      if (distances_)
        logits = distance_logits(poses);
      else
        logits =
            logits.empty() ? agreement(poses) : builder_.node("Add", {logits, agreement(poses)});
    }
  }

  Routed attend() {
    const bool self = reader_.word("agreement", {"all", "self"}, "all") == "self";
    const std::string agreed =
        builder_.node("Mul", {self ? builder_.squares(votes_, {3}, /*keep=*/false)
                                   : agreement(builder_.sum(votes_, 2, /*keep=*/false)),
                              builder_.constant(1.0F / std::sqrt(static_cast<float>(dim_)))});
    const std::string attention = builder_.node("Softmax", {agreed}, {{"axis", int64_t{1}}});
    const FloatTensor prior = reader_.weights().read(reader_.node(), "bias");  // [I, J]
    const std::string turned =
        builder_.transpose(builder_.constant(prior.shape, prior.values), {1, 0});
    std::string couplings, seen;  // what the parents see
    if (reader_.word("prior", {"rounded", "exact"}, "rounded") == "exact") {
      couplings = rounded(builder_, attention, levels_);
      seen = builder_.node("Add", {couplings, turned});
    } else {
      // The outer levels clamp.
      couplings = rounded(builder_, builder_.node("Add", {attention, turned}), levels_);
      seen = couplings;
    }
    const std::string poses = squash(builder_, weighted_sum(seen), {2}, reader_.squash_form(),
                                     reader_.real("epsilon", 0, 1));
    return {poses, by_child(couplings)};
  }

  // sum_i c_ij u^_ij, [B, J, D]
  std::string weighted_sum(const std::string& couplings) {
    const std::string rows = builder_.reshape(couplings, {0, 0, 1, children_});
    return builder_.reshape(builder_.node("MatMul", {rows, votes_}), {0, parents_, dim_});
  }
  // <u^_ij, v_j>, [B, J, I]
  std::string agreement(const std::string& poses) {
    const std::string columns = builder_.reshape(poses, {0, 0, dim_, 1});
    return builder_.reshape(builder_.node("MatMul", {votes_, columns}), {0, parents_, children_});
  }
  // The logits t d_ij; t is relative to the mean distance of the image.
  std::string distance_logits(const std::string& poses) {
    const std::string apart =
        builder_.node("Sub", {votes_, builder_.reshape(poses, {0, 0, 1, dim_})});
    const std::string distance =
        builder_.node("Sqrt", {builder_.squares(apart, {3}, /*keep=*/false)});
    const std::string mean = builder_.node(
        "ReduceMean", {distance}, {{"axes", std::vector<int64_t>{1, 2}}, {"keepdims", int64_t{1}}});
    const float log_odds = parents_ < 2 ? 0.0F : std::log(9.0F * static_cast<float>(parents_ - 1));
    const std::string below = builder_.node(
        "Sub", {builder_.constant(1e-12F), builder_.node("Mul", {mean, builder_.constant(0.5F)})});
    const std::string scale = builder_.node("Div", {builder_.constant(log_odds), below});
    return builder_.node("Mul", {distance, scale});
  }
  std::string by_child(const std::string& couplings) {
    return builder_.transpose(couplings, {0, 2, 1});
  }

  Builder& builder_;
  const runtime::NodeReader& reader_;
  const Quantizer* levels_;
  int64_t children_ = 0, parents_ = 0, dim_ = 0;
  bool distances_ = false;
  std::string votes_;
};

// The place of every capsule of every window among the capsules of the map.
std::vector<int64_t> window_places(const runtime::NodeReader& reader) {
  const auto number = [&](const char* key) { return reader.integer(key, 1, kLargest); };
  const int64_t types = number("types"), height = number("height"), width = number("width");
  const int64_t kernel = number("kernel"), stride = number("stride");
  std::vector<int64_t> places;
  for (int64_t y = 0; y + kernel <= height; y += stride)
    for (int64_t x = 0; x + kernel <= width; x += stride)
      for (int64_t type = 0; type < types; ++type)
        for (int64_t ky = 0; ky < kernel; ++ky)
          for (int64_t kx = 0; kx < kernel; ++kx)
            places.push_back((type * height + y + ky) * width + x + kx);
  return places;
}

Routed window(Builder& builder, const Source& source, const Quantizer* levels) {
  const runtime::RoutingInfo& routing = source.routing;
  const std::string gathered =
      builder.node("Gather", {source.inputs[0], builder.integers(window_places(source.reader))},
                   {{"axis", int64_t{1}}});
  Connected connected(builder, source, levels);
  const Routed routed = connected.route(
      builder.reshape(gathered, {-1, routing.children, source.reader.capsules().dim}));
  const std::string poses = builder.transpose(
      builder.reshape(routed.poses, {-1, routing.positions, routing.parents, connected.dim()}),
      {0, 2, 1, 3});
  return {builder.reshape(poses, {0, source.shape.count, source.shape.dim}), routed.couplings};
}

// Votes are [N, T, J, D, P], couplings [N, T, J, P]. A softmax runs over parents and places.
Routed conv3d(Builder& builder, const Source& source, const Quantizer* levels) {
  const runtime::NodeReader& reader = source.reader;
  const runtime::ValueShape map = reader.map();
  const runtime::RoutingInfo& routing = source.routing;
  const int64_t types = routing.children, parents = routing.parents, places = routing.positions;
  const int64_t dim = reader.integer("dim", 1, kLargest);
  const FloatTensor weight = reader.weights().read(reader.node(), "weight");
  const int64_t depth = weight.shape[2];
  std::string children = builder.reshape(source.inputs[0], {-1, dim, map.height, map.width});
  if (depth < dim) children = builder.slice(children, 1, depth);
  std::vector<std::string> inputs = {
      children, builder.constant({weight.shape[0], depth, 3, 3}, weight.values)};
  const auto add_tensor = [&](const std::string& role, const std::vector<int64_t>& shape) {
    return builder.constant(shape, reader.weights().read(reader.node(), role).values);
  };
  if (reader.node().tensors.contains("vote_bias"))
    inputs.push_back(add_tensor("vote_bias", {weight.shape[0]}));
  const std::string votes =
      builder.reshape(builder.node("Conv", inputs, {{"pads", std::vector<int64_t>(4, 1)}}),
                      {-1, types, parents, dim, places});
  const bool over_map = reader.word("squash_over", {"atoms", "map"}) == "map";
  const std::vector<int64_t> axes = over_map ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{2};
  const int64_t iterations = reader.integer("iterations", 1, kLargest);
  std::string couplings, logits;
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == iterations;
    if (iteration == 1)
      couplings = for_each_image(builder, votes, {types, parents, places},
                                 1.0F / static_cast<float>(parents * places));
    else
      couplings = builder.reshape(builder.node("Softmax", {builder.reshape(logits, {0, types, -1})},
                                               {{"axis", int64_t{2}}}),
                                  {0, types, parents, places});
    if (last) couplings = rounded(builder, couplings, levels);
    const std::string weights = builder.reshape(couplings, {0, types, parents, 1, places});
    std::string sum = builder.sum(builder.node("Mul", {votes, weights}), 1, /*keep=*/false);
    if (reader.node().tensors.contains("bias"))
      sum = builder.node("Add", {sum, add_tensor("bias", {parents, dim, 1})});
    const std::string poses =
        squash(builder, sum, axes, kernels::SquashForm::kNorm, reader.real("epsilon", 0, 1));
    if (last)
      return {builder.reshape(poses, {0, source.shape.channels, map.height, map.width}),
              builder.transpose(couplings, {0, 3, 1, 2})};
    const std::string agreed = builder.sum(
        builder.node("Mul", {votes, builder.reshape(poses, {0, 1, parents, dim, places})}), 3,
        /*keep=*/false);
    logits = logits.empty() ? agreed : builder.node("Add", {logits, agreed});
  }
}

}  // namespace

Routed add_routing(Builder& builder, const Source& source, const Quantizer* levels) {
  const std::string& op = source.reader.node().op;
  Routed routed;
  if (op == "window_routing")
    routed = window(builder, source, levels);
  else if (op == "conv3d_routing")
    routed = conv3d(builder, source, levels);
  else
    routed = Connected(builder, source, levels).route(source.inputs[0]);
  const runtime::RoutingInfo& routing = source.routing;
  routed.couplings =
      builder.reshape(routed.couplings, {-1, routing.positions, routing.children, routing.parents});
  return routed;
}

}  // namespace remcaps::onnx_export
