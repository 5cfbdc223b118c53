// The children of a network's class layer, which can be taken out as a whole.
#pragma once

#include <vector>

#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// What is taken out together.
enum class CapsuleGroup {
  kCapsule,  ///< one capsule
  kType,     ///< the capsules of one type, at all places
  kPlace,    ///< the capsules of all types at one place
};

/// The group of each child, int64 [children]. Error if there are types or places to find and no
/// grid has them.
Tensor capsule_groups(const std::vector<CapsuleGrid>& grids, CapsuleGroup group, int64_t children);

/// The class layer of a network. Error if whole capsules cannot be taken out of it: it needs dynamic
/// routing with a bias and a matrix W_ij for every child and parent.
FcCapsImpl& prunable_class_layer(const CapsNet& model);

/// The primary capsules that are the children of the class layer, in the order of PrimaryCaps. Null
/// if the network has other children.
PrimaryCapsImpl* class_children(const CapsNet& model);

/// Mean and variance of what a child gives its parents, c_ij û_ij, over some images.
struct GivenVotes {
  Tensor mean;      ///< [I, J, Dout]
  Tensor variance;  ///< summed over the parents and their numbers, [I]
};

/// Adds them up, part by part.
class GivenVotesSums {
 public:
  explicit GivenVotesSums(const FcCapsImpl& layer);
  /// poses [B, I, Din], couplings [B, I, J]. All votes of the part are held at once.
  void add(const Tensor& poses, const Tensor& coupling);
  GivenVotes result() const;

 private:
  Tensor matrices_;       ///< [I, Din, J * Dout]
  Tensor sum_, squares_;  ///< float64 [I, J, Dout]
  int64_t images_ = 0;
};

}  // namespace remcaps
