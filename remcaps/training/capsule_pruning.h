// Whole capsules are taken out of a trained network; those that stay take over what they gave.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "remcaps/evaluation/evaluate.h"
#include "remcaps/pruning/capsules.h"

namespace remcaps {

struct CapsulePruningOptions {
  CapsuleGroup group = CapsuleGroup::kCapsule;
  double tolerance = 0.3;  ///< the validation loss may be (1 + tolerance) times the lowest so far
  int64_t least = 1;       ///< groups that stay at least
  double step = 0.6;       ///< the first tries keep this share of the groups
  int64_t epochs = 4;      ///< of training the class layer after each removal
  int64_t batch = 128;
  double lr = 1e-3, lr_decay = 0.7;  ///< of an epoch after a removal: lr * lr_decay^epoch
  double lambda = 0;                 ///< LOBSTER's, while the class layer is trained
  uint64_t seed = 42;
  MarginOptions margin = {};
  /// For the numbers of a try. Without it these are not counted.
  std::optional<Quantizer> quantizer = {};
};

/// The network after one removal, on the validation images.
struct CapsulePruningTry {
  int64_t groups = 0, capsules = 0;  ///< that stayed
  double loss = 0, accuracy = 0;
  /// With the couplings of the class layer quantized; nothing without a quantizer.
  std::optional<double> accuracy_quantized = {}, entropy = {};
  bool within = true;  ///< whether the loss is within the bound
};

/// The children of a network's class layer for many images, which stay as they are while whole
/// capsules are taken out of that layer.
struct ChildCapsules {
  Tensor poses;   ///< u_i, [N, I, D], float16: there are many
  Tensor labels;  ///< int64 [N]
};
ChildCapsules child_capsules(CapsNet& model, const BatchSource& source,
                             const EvaluateOptions& options, int64_t limit = 0);

/// Over the children of a layer.
GivenVotes given_votes(FcCapsImpl& layer, const ChildCapsules& children);
/// The same for the class layer of a network, over all images of a source, on their device. Every
/// process of a group gets the same.
GivenVotes given_votes(CapsNet& model, const BatchSource& source, EvaluateOptions options);

/// Takes as many groups out of the class layer as the tolerance allows. What a group gives its
/// parents is replaced by its mean, which goes into their bias; the groups go first whose gift
/// varies least from image to image. Then the layer is trained for a few epochs, on children that do
/// not change. If the loss is above the bound, the next try takes fewer groups out, otherwise more:
/// a bisection that starts from the last network within the bound. At last the single weights below
/// the largest threshold that does not raise the loss are set to zero (threshold_search.h).
///
/// Afterwards the matrices of the capsules that are out are zero. Returns the tries; the first one is
/// the network as it was, the last one the result.
std::vector<CapsulePruningTry> prune_capsules(
    CapsNet& model, const ChildCapsules& training, const ChildCapsules& validation,
    const std::vector<CapsuleGrid>& grids, const CapsulePruningOptions& options,
    const std::function<void(const CapsulePruningTry&)>& on_try = {});

}  // namespace remcaps
