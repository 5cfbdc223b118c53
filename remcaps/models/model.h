// The interface of every network, and the registry that finds networks by name.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/capsule/forward.h"
#include "remcaps/ops/kernel_path.h"
#include "remcaps/runtime/graph.h"

namespace remcaps {

class Decoder;

struct ImageShape {
  int64_t channels = 1, height = 28, width = 28;
};

/// One row of `remcaps describe`: a layer, its output and its costs for one image.
struct LayerCost {
  std::string name;             ///< e.g. "primary"
  std::string kind;             ///< e.g. "Conv2d 9x9 s2 + squash"
  std::vector<int64_t> output;  ///< without the batch, e.g. [256, 20, 20] or [1152, 8]
  int64_t parameters = 0;
  int64_t multiply_adds = 0;      ///< forward, with all routing iterations
  int64_t vote_floats = 0;        ///< votes that the plain routing code holds at once
  int64_t activation_floats = 0;  ///< floats that the layer keeps for backward
};

/// A routing layer of a network.
struct RoutingLayer {
  std::string name;
  int64_t children = 0, parents = 0;  ///< convolutional: places of a window, parent types
  int64_t iterations = 0;
  bool convolutional = false;
};

/// What a network must know about the data and the run.
struct ModelContext {
  ImageShape input;
  int64_t classes = 10;
  /// Normalisation of the images, one number or one per channel. The decoder's output is normalised
  /// too.
  std::vector<double> mean = {0.0}, std = {1.0};
  /// Which implementation of routing, convolutions and squash the network uses.
  KernelPath kernels = KernelPath::kFused;
  /// Whether to read the weights file of a pretrained backbone. Off if a checkpoint is loaded next:
  /// it contains the backbone, so the file need not exist.
  bool load_pretrained = true;
};

/// A network's decoder.
struct DecoderOptions {
  enum class Kind {
    kNone,
    kFc,    ///< DR-CapsNet's: fully connected layers
    kConv,  ///< DeepCaps': transposed convolutions
  };
  Kind kind = Kind::kNone;
  std::vector<int64_t> hidden = {512, 1024};  ///< kFc: sizes of the hidden layers
};
/// Binds `decoder` and `decoder_hidden`.
void bind(ConfigSection& section, DecoderOptions& options);

/// A capsule network. A network of your own derives from it (or from StackedCapsNet, which does
/// more of the work) and must define forward(), routing_layers() and prunable_layers().
class CapsNet : public torch::nn::Module {
 public:
  /// `images` are float32 [B, C, H, W], normalised.
  virtual Forward forward(const Tensor& images, const ForwardOptions& options) = 0;
  Forward forward(const Tensor& images) { return forward(images, ForwardOptions{}); }

  /// forward() with two sets of options. A network may override it to compute only once what does
  /// not depend on the options.
  virtual std::pair<Forward, Forward> forward_both(const Tensor& images,
                                                   const ForwardOptions& first,
                                                   const ForwardOptions& second);

  /// In the order in which forward() runs them.
  virtual std::vector<RoutingLayer> routing_layers() const = 0;
  /// Error if there is none: the network then has neither couplings nor parse trees.
  void require_routing() const;
  /// What `remcaps describe` prints and memory estimates use. By default nothing is known.
  virtual std::vector<LayerCost> costs() const { return {}; }

  /// Where the children of the class layer lie; empty if they have no position. Pruning in groups by
  /// type or place uses it.
  virtual std::vector<CapsuleGrid> class_grids() const { return {}; }

  /// The layers that pruning counts and shrinks. In the published networks these are convolutions
  /// and capsule layers, but not batch norms, decoders and priors. A parameter belongs to an entry
  /// if its name is the entry ("class.weight") or starts with the entry and a dot ("conv1" stands
  /// for conv1.weight and conv1.bias). Frozen parameters (requires_grad off) are counted but not
  /// changed.
  virtual std::vector<std::string> prunable_layers() const = 0;

  /// True if the result of an image in evaluation mode is known not to depend on the other images
  /// of its batch. It does in gamma-CapsNet, whose published routing takes a mean over the batch.
  virtual bool images_are_independent() const { return false; }

  /// Whether the activations are probabilities of the classes, which the loss `cross-entropy` needs.
  virtual bool gives_probabilities() const { return false; }

  /// What the network computes, for programs without libtorch; names of classes, levels and the
  /// handling of pictures are left empty. Nothing if it cannot be described.
  virtual std::optional<NetworkGraph> graph() const { return std::nullopt; }

  bool has_decoder() const { return decoder_ != nullptr; }
  /// The decoder alone: class poses [B, J, D] with one capsule that is not zero -> [B, C, H, W].
  /// Error if the network has no decoder.
  virtual Tensor decode(const Tensor& masked_poses);

  /// The number of all parameters, and of those that are trained (a frozen backbone is not).
  int64_t all_parameters() const;
  int64_t trainable_parameters() const;

  const std::string& name() const { return name_; }
  ImageShape input() const { return input_; }
  int64_t classes() const { return classes_; }

 protected:
  CapsNet(std::string name, ImageShape input, int64_t classes)
      : name_(std::move(name)), input_(input), classes_(classes) {}

  /// Registers the module "decoder". Does nothing if the kind is kNone.
  void add_decoder(const DecoderOptions& options, int64_t class_dim, const ModelContext& context);

  /// The decoder's images if options.reconstruct is set and there is a decoder; else undefined. The
  /// decoder gets the capsule of the label, or the longest one if there are no labels.
  Tensor reconstruct(const Tensor& poses, const Tensor& activations, const ForwardOptions& options);

  const Decoder* decoder() const { return decoder_.get(); }  ///< null if there is none

 private:
  std::shared_ptr<Decoder> decoder_;
  std::string name_;
  ImageShape input_;
  int64_t classes_;
};

/// Makes a network by name. `section` holds the recipe's `model` keys without `name`; unknown keys
/// are errors. The weights come from torch's global generator: seed it first.
///
/// In C++ no recipe is needed: each network is a class with an options struct, e.g.
///   DrCapsNet network(context, {.primary_types = 16, .routing = DynamicRouting{.iterations = 2}});
std::shared_ptr<CapsNet> make_network(const std::string& name, const ModelContext& context,
                                      ConfigSection& section);

std::vector<std::string> network_names();

/// Adds a network, or replaces the one of the same name. The factory binds the recipe's `model`
/// keys and makes the network. Not thread-safe: register before networks are made.
using NetworkFactory =
    std::function<std::shared_ptr<CapsNet>(const ModelContext& context, ConfigSection& section)>;
void register_network(const std::string& name, NetworkFactory factory);

}  // namespace remcaps
