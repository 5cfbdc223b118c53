// The parse tree of one image, or of a mean over images, as a graph: nodes with activations, edges
// with couplings and, of one image, with shares of the evidence.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

/// The fully connected layers at the top of a network, for one image or as a mean over images.
/// Layer 0 holds the children of the first of these routing layers, the last layer the class
/// capsules.
struct CapsuleLayers {
  std::vector<std::string> names;   ///< "primary", then the routing layers' own names
  std::vector<Tensor> activations;  ///< ||u||, [n_l] each, on the CPU
  std::vector<Tensor> couplings;    ///< c between layers l and l + 1, [n_l, n_(l+1)] each, CPU
  /// Which part of the evidence for its parent each child contributes, of the couplings' shapes;
  /// may be negative. Empty if the forward pass kept no contributions, and for a mean over images.
  std::vector<Tensor> shares;
  /// Of each layer but the last; empty for capsules that lie on no map.
  std::vector<std::vector<CapsuleGrid>> grids;

  int64_t size(size_t layer) const { return activations.at(layer).size(0); }
};

/// The first routing layer from which on every layer is fully connected and feeds the next.
size_t first_tree_layer(const std::vector<RoutingTrace>& routings);

/// One image of a batch.
CapsuleLayers capsule_layers(const Forward& forward, int64_t image);

/// What makes a connection part of a tree.
enum class TreeOf {
  kCouplings,      ///< the paper's trees
  kContributions,  ///< how much of the evidence for its parent a child contributes
};

struct TreeOptions {
  TreeOf of = TreeOf::kCouplings;
  /// A coupling, or a share of the evidence, counts if it is ABOVE this. Unset:
  /// - couplings: 1/|Omega^[l]| of the parents' layer l, which is the coupling of a child that prefers
  ///   no parent
  /// - contributions: those that carry half of the parent's positive evidence, the least number of
  ///   them
  std::optional<double> threshold = {};
  /// Also show connections at or below the threshold that are not zero.
  bool weak_edges = false;

  bool operator==(const TreeOptions&) const = default;
};

struct TreeNode {
  double activation = 0;
  /// deg^-: how many couplings from the layer below count; 0 in the first layer.
  int64_t in_degree = 0;
  bool in_tree = false;  ///< reached from a root
};

/// From capsule `from` of layer `layer` to capsule `to` of the layer above.
struct TreeEdge {
  int64_t layer = 0, from = 0, to = 0;
  double coupling = 0;
  double share = 0;  ///< of the parent's evidence; 0 if it is not known
};

struct ParseTree {
  TreeOf of = TreeOf::kCouplings;
  std::vector<std::string> names;               ///< of the layers
  std::vector<std::vector<TreeNode>> layers;    ///< first layer first
  std::vector<std::vector<CapsuleGrid>> grids;  ///< of each layer but the last, if it has any
  /// [l] is the threshold of the connections into layer l; [0] is unused. A tree of the
  /// contributions that carry half uses none.
  std::vector<double> thresholds;
  std::vector<int64_t> roots;   ///< class capsules it was backtracked from
  std::vector<TreeEdge> edges;  ///< from the roots downwards

  int64_t nodes_in_tree() const;
  /// The number that the tree is of: coupling or share.
  double strength(const TreeEdge& edge) const {
    return of == TreeOf::kCouplings ? edge.coupling : edge.share;
  }
};

/// Goes back from the roots. A connection from capsule j to a capsule that was reached is part of
/// the tree if its coupling counts and deg^-(j) >= 1. The capsules of the first layer are leaves
/// and need no in-degree.
ParseTree parse_tree(const CapsuleLayers& layers, const std::vector<int64_t>& roots,
                     const TreeOptions& options = {});

/// Activations and couplings averaged over the images of each predicted class and over all images.
/// The sums stay on the device.
class TreeAverage {
 public:
  void add(const Forward& forward);

  int64_t images() const;
  std::vector<int64_t> images_per_class() const;
  /// The mean over the images predicted as one class. Error if there was none.
  CapsuleLayers of_class(int64_t class_index) const;
  /// The mean over all images.
  CapsuleLayers of_all() const;

 private:
  CapsuleLayers mean(const std::function<Tensor(const Tensor&)>& pick, double images) const;

  std::vector<std::string> names_;
  std::vector<std::vector<CapsuleGrid>> grids_;
  std::vector<Tensor> activations_;  // [classes, n_l], float64
  std::vector<Tensor> couplings_;    // [classes, n_l, n_(l+1)], float64
  Tensor count_;                     // int64 [classes]
};

}  // namespace remcaps
