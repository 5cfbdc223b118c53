// Weights that go together: whole capsules, filters and channels.
#pragma once

#include <optional>

#include "remcaps/pruning/capsules.h"
#include "remcaps/pruning/scope.h"
#include "remcaps/pruning/threshold_search.h"

namespace remcaps {

/// The names that `pruning.groups` may have:
///   capsule  the matrices W_ij of a child of the class layer to all parents
///   type     those of the capsules of a type, at all places, and the filters that make them
///   place    those of the capsules of all types at a place
///   filter   the weights of a convolution that make one of its channels
///   channel  the weights of a convolution that read one of the channels below it
const std::vector<std::string>& weight_group_names();

class WeightGroups {
 public:
  /// UsageError if the network or `weights`, those that may be pruned, have no such groups.
  WeightGroups(const PrunableNetwork& network, const std::vector<NamedTensor>& weights,
               const std::vector<std::string>& kinds);

  bool has_capsules() const { return !partitions_.empty(); }

  /// LOBSTER's shrinking, once for each group that a weight w belongs to:
  ///   w <- w (1 - lambda sum_G max(0, 1 - |dL/dw_G|))
  /// with the Euclidean norm of the gradient of all weights of the group G. It can be recorded in a
  /// CUDA graph.
  void shrink(double lambda) const;

  /// The sizes of the groups, which a threshold search compares. The unit is the root mean square
  /// over the groups of the same kind in the layer.
  /// - Of a filter or channel: the norm of its weights.
  /// - Of capsules: how much what they give their parents differs from image to image (its standard
  ///   deviation, as a root mean square over the capsules).
  /// A weight has the smallest size of its groups. A filter of primary capsules goes with the last
  /// capsule that it makes.
  ///
  /// What a capsule gave on average is added to the parents' bias where the capsule goes. `given` is
  /// needed if has_capsules().
  GroupedWeights sizes(const std::optional<GivenVotes>& given) const;

 private:
  /// The groups of one kind of capsules.
  struct Partition {
    Tensor members;  ///< float64 [groups, I], 1 for a member; undefined: each child is a group
    bool of_types = false;

    Tensor sums(const Tensor& of_children) const;   ///< [I] -> [groups]
    Tensor spread(const Tensor& of_groups) const;   ///< [groups] -> [I]
    Tensor means(const Tensor& of_children) const;  ///< [I] -> [groups]
  };
  void add_capsules(const PrunableNetwork& network, const std::vector<NamedTensor>& weights,
                    CapsuleGroup group);

  std::vector<NamedTensor> filters_, channels_;  ///< weights of convolutions
  std::vector<Partition> partitions_;
  NamedTensor matrices_;  ///< of the class layer; undefined without groups of capsules
  Tensor bias_;           ///< of the class layer
  NamedTensor makers_;    ///< the filters that make its children; undefined if they are not pruned
  int64_t types_ = 0;     ///< of its children
};

}  // namespace remcaps
