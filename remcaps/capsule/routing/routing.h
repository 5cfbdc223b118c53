// Routing: how child capsules divide themselves among parent capsules.
//
// One file per algorithm:
//   dynamic.h          routing by agreement (Sabour et al.): start reading there
//   scaled_distance.h  routing by scaled distance agreement (gamma-CapsNet)
//   self_attention.h   self-attention routing (Efficient-CapsNet)
//   window.h           dynamic routing inside the windows of a map (ConvCaps)
//   conv3d.h           routing through a 3-D convolution (DeepCaps)
//
// The first three are for fully connected layers. They are RoutingAlgorithms: FcCaps works with any
// of them, and recipes find them by name. The last two belong to one kind of layer each.
//
// Symbols and shapes are the same in all files:
//   B images, I children of Din numbers each, J parents of Dout numbers each
//   children  [B, I, Din]        u_i
//   weight    [I, J, Dout, Din]  W_ij
//   votes     [B, I, J, Dout]    û_ij = W_ij u_i, what child i predicts for parent j
//   logits    [B, I, J]          b_ij, zero at the start
//   coupling  [B, I, J]          c_ij, softmax of the logits over the parents j
//   poses     [B, J, Dout]       v_j
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/ops/kernel_path.h"
#include "remcaps/ops/squash.h"
#include "remcaps/parse_tree/quantizer.h"
#include "remcaps/runtime/graph.h"

namespace remcaps {

class PackedMatrices;

/// What the gradient of the loss sees of the routing iterations.
enum class RoutingGradient {
  kLast,  ///< published code: votes are constants except in the last weighted sum
  kFull,  ///< paper's appendix: both terms, through the couplings of every iteration too
};

/// In which iterations a parent's bias is added to its pre-activation.
enum class BiasUse { kNone, kEvery, kLast };

/// What a caller wants of one pass through a routing layer.
struct RoutingRequest {
  /// Rounds the couplings of the last iteration before the weighted sum. The rounded couplings are
  /// not normalised again.
  std::optional<Quantizer> quantizer = std::nullopt;
  /// Whether RoutingResult::coupling is needed. A fused kernel skips it if not.
  bool coupling = true;
  /// Whether RoutingResult::contribution is needed. It needs the couplings.
  bool contributions = false;
};

struct RoutingResult {
  Tensor poses;     ///< v_j, [B, J, Dout]
  Tensor coupling;  ///< of the last iteration, rounded if a quantizer was given; [B, I, J]
  /// How many couplings were outside [0, 1] and were clamped before rounding: a scalar on the
  /// device. Undefined if the algorithm cannot leave [0, 1].
  Tensor clamped;
  /// If asked for: what the evidence ||s_j|| for each parent is made of. Child i contributes
  /// e_ij = c_ij <û_ij, s_j / ||s_j||>, which may be negative, and the bias its own product with
  /// s_j / ||s_j||. Contributions of the children and of the bias add up to ||s_j||.
  Tensor contribution = {};       ///< [B, I, J]
  Tensor bias_contribution = {};  ///< [B, J]
};

/// A fully connected capsule layer as its routing algorithm sees it.
struct RoutedLayer {
  int64_t children = 0, parents = 0;      ///< I, J
  int64_t child_dim = 0, parent_dim = 0;  ///< Din, Dout
  /// What a bias starts with: N(bias_mean, bias_std²).
  double bias_mean = 0.1, bias_std = 0.0;
};

/// The learned tensor that an algorithm has besides the matrices W_ij.
struct RoutingParameter {
  std::string name;              ///< in state files: "bias" of the layer "class" is "class.bias"
  std::vector<int64_t> shape;    ///< the bias is [J, Dout]
  double mean = 0.0, std = 0.0;  ///< its start: N(mean, std²)
  bool prunable = true;          ///< whether pruning counts and shrinks it
};

/// What routing costs for one image.
struct RoutingCost {
  int64_t multiply_adds = 0;      ///< forward, all iterations
  int64_t vote_floats = 0;        ///< votes that the plain code holds at once
  int64_t activation_floats = 0;  ///< what is kept for backward
};

class RoutingAlgorithm;
/// An algorithm with its options. The options structs convert to it:
///   RoutingPtr routing = DynamicRouting{.iterations = 2};
using RoutingPtr = std::shared_ptr<const RoutingAlgorithm>;

/// A routing algorithm of fully connected capsule layers. It has options but no state: the layers
/// own the tensors it works on.
///
/// To add one, derive from this class and call register_routing(). Only name(), cost() and run()
/// have no default. self_attention.cpp is a short example.
class RoutingAlgorithm : public std::enable_shared_from_this<RoutingAlgorithm> {
 public:
  virtual ~RoutingAlgorithm() = default;

  /// The value of `routing.algorithm` in a recipe, e.g. "dynamic".
  virtual std::string name() const = 0;
  /// Name and iterations as `remcaps describe` prints them, e.g. "dynamic r=3".
  virtual std::string label() const { return name(); }
  /// 1 if the algorithm does not iterate.
  virtual int64_t iterations() const { return 1; }
  /// How parents are squashed. Some networks squash their primary capsules in the same way.
  virtual Squash squash() const { return {}; }
  /// The learned tensor it needs for this layer; none by default.
  virtual std::optional<RoutingParameter> parameter(const RoutedLayer& layer) const;
  /// The costs that `remcaps describe` adds up.
  virtual RoutingCost cost(const RoutedLayer& layer) const = 0;
  /// Whether the result of an image depends on the other images of its batch.
  virtual bool batch_dependent() const { return false; }
  /// Whether processes can each route their share of a batch (capsule/divided_batch.h).
  virtual bool divisible() const { return !batch_dependent(); }
  /// Makes `node` the algorithm's node of an inference graph: its op and attributes. False if it
  /// has none; the runtime then cannot run networks that use it.
  virtual bool describe(GraphNode& node) const;
  /// Whether run() can use PackedMatrices. If not, FcCaps does not make them.
  virtual bool uses_packed_matrices() const { return false; }

  /// The same algorithm with the options that a recipe's `routing` section gives. Options without a
  /// key in the section keep their values. By default an algorithm has no options.
  virtual RoutingPtr configured(ConfigSection& keys) const;
  /// The same algorithm on this path. By default there is one implementation, for both paths.
  virtual RoutingPtr with_kernels(KernelPath kernels) const;

  /// Routes. `parameter` is the tensor that parameter() describes, undefined if there is none.
  /// `packed` is a copy of the weight that the CPU's kernel routes a few images with; it may be
  /// null. Under autocast on a GPU the children are converted to float32 first.
  RoutingResult route(const Tensor& children, const Tensor& weight, const Tensor& parameter,
                      const RoutingRequest& request = {},
                      const PackedMatrices* packed = nullptr) const;

 protected:
  /// The votes û_ij of the last weighted sum, [B, I, J, Dout]: W_ij u_i by default.
  virtual Tensor votes(const Tensor& children, const Tensor& weight) const;
  /// What the votes are multiplied with there, [B, I, J]: the couplings by default.
  virtual Tensor vote_weights(const Tensor& coupling, const Tensor& parameter) const;
  /// What is added to the last weighted sum, [J, Dout]. Undefined, the default: nothing.
  virtual Tensor added_bias(const Tensor& parameter) const;

  virtual RoutingResult run(const Tensor& children, const Tensor& weight, const Tensor& parameter,
                            const RoutingRequest& request, const PackedMatrices* packed) const = 0;

 private:
  void add_contributions(RoutingResult& result, const Tensor& children, const Tensor& weight,
                         const Tensor& parameter) const;
};

/// Adds an algorithm, or replaces the one of the same name. Recipes then find it by its name(); its
/// options are the defaults. Not thread-safe: register before networks are made.
void register_routing(RoutingPtr algorithm);
/// The registered algorithm with its default options. UsageError suggests the nearest name.
RoutingPtr routing_by_name(const std::string& name);
/// In alphabetical order.
std::vector<std::string> routing_names();

/// Binds a network's `routing` section: `algorithm` (default: the one in `routing`) and the keys of
/// that algorithm. `routing` becomes what they say.
void bind_routing(ConfigSection& section, RoutingPtr& routing);

/// The form of a squash in a graph: "norm" or "exponential".
std::string form_name(const Squash& squash);

/// Parts of the plain versions that several algorithms share.

/// û_ij = W_ij u_i, [B, I, J, Dout].
Tensor make_votes(const Tensor& children, const Tensor& weight);
/// s_j = sum_i c_ij û_ij, [B, J, Dout].
Tensor weighted_sum(const Tensor& coupling, const Tensor& votes);
/// s / ||s||, over the last dimension; 0 for a pre-activation of length 0.
Tensor direction_of(const Tensor& preactivation);
/// The couplings rounded to the request's levels; unchanged if it has no quantizer.
Tensor quantized(const Tensor& coupling, const RoutingRequest& request);

}  // namespace remcaps
