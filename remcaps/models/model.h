// The interface of every network, and the registry that makes them by name.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/capsule/forward.h"
#include "remcaps/capsule/routing.h"

namespace remcaps {

class Decoder;

struct ImageShape {
  int64_t channels = 1, height = 28, width = 28;
};

/// One row of `remcaps describe`: a layer, its output and what it costs for one image.
struct LayerCost {
  std::string name;             ///< "primary"
  std::string kind;             ///< "Conv2d 9x9 s2 + squash"
  std::vector<int64_t> output;  ///< without the batch: [256, 20, 20] or [1152, 8]
  int64_t parameters = 0;
  int64_t multiply_adds = 0;      ///< forward, one image, every routing iteration counted
  int64_t vote_floats = 0;        ///< votes the plain path holds at once, one image
  int64_t activation_floats = 0;  ///< floats the layer keeps for backward, one image
};

/// A routing layer, known before any image is seen.
struct RoutingLayer {
  std::string name;
  int64_t children = 0, parents = 0;  ///< for a convolutional one: places of a window, parent types
  int64_t iterations = 0;
  bool convolutional = false;
};

/// What a network needs to know of the data it is built for, and of the run.
struct ModelContext {
  ImageShape input;
  int64_t classes = 10;
  /// Per-channel normalisation: the decoder's output is compared in normalised space.
  std::vector<double> mean = {0.0}, std = {1.0};
  /// Which implementation of routing the network uses.
  KernelPath kernels = KernelPath::kFused;
  /// Read the weights file of a pretrained backbone the recipe names. Off where a checkpoint, which
  /// holds the backbone too, is loaded right after: the file need not be there then.
  bool load_pretrained = true;
};

/// The recipe's `decoder` keys of a network.
struct DecoderOptions {
  std::string kind = "none";                  ///< "none", "fc" (DR-CapsNet's) or "conv" (DeepCaps')
  std::vector<int64_t> hidden = {512, 1024};  ///< "fc": sizes of its hidden layers
};
/// Binds `decoder` and `decoder_hidden`.
void bind(ConfigSection& section, DecoderOptions& options);

class CapsNet : public torch::nn::Module {
 public:
  /// images: float32 [B, C, H, W], normalised.
  virtual Forward forward(const Tensor& images, const ForwardOptions& options) = 0;
  Forward forward(const Tensor& images) { return forward(images, ForwardOptions{}); }

  /// forward() with each of two options, at the cost of one where they differ in the couplings of
  /// fully connected layers alone: a network may compute what lies below once.
  virtual std::pair<Forward, Forward> forward_both(const Tensor& images,
                                                   const ForwardOptions& first,
                                                   const ForwardOptions& second);

  virtual std::vector<RoutingLayer> routing_layers() const = 0;
  virtual std::vector<LayerCost> costs() const = 0;

  /// The layers that pruning counts and shrinks (published: convolutions and capsule layers; not
  /// batch norms, decoders, priors). A parameter belongs to one when its name is the entry itself
  /// ("class.weight") or begins with the entry and a dot ("conv1" holds conv1.weight, conv1.bias).
  /// Parameters that are not trained (requires_grad off) count, but must not be changed.
  virtual std::vector<std::string> prunable_layers() const = 0;

  /// Whether what an image gives in evaluation mode is known not to depend on the others of its
  /// batch. gamma-CapsNet's published routing takes a mean over the batch.
  virtual bool images_are_independent() const { return false; }

  bool has_decoder() const { return decoder_ != nullptr; }
  /// The decoder alone, from class poses [B, J, D] masked to one capsule: [B, C, H, W]. Error where
  /// the network has none.
  virtual Tensor decode(const Tensor& masked_poses);

  /// Every parameter, trained or frozen.
  int64_t all_parameters() const;

  const std::string& name() const { return name_; }
  ImageShape input() const { return input_; }
  int64_t classes() const { return classes_; }

  /// Parameters that are trained (frozen backbones are not).
  int64_t trainable_parameters() const;

 protected:
  CapsNet(std::string name, ImageShape input, int64_t classes)
      : name_(std::move(name)), input_(input), classes_(classes) {}

  /// Registers "decoder" as the recipe asks for it ("none": does nothing).
  void add_decoder(const DecoderOptions& options, int64_t class_dim, const ModelContext& context);

  /// The decoder's image where options.reconstruct asks for one and there is a decoder: of the true
  /// class where labels are given, else of the longest capsule. Undefined otherwise.
  Tensor reconstruct(const Tensor& poses, const Tensor& activations, const ForwardOptions& options);

  const Decoder* decoder() const { return decoder_.get(); }  ///< null where there is none

 private:
  std::shared_ptr<Decoder> decoder_;
  std::string name_;
  ImageShape input_;
  int64_t classes_;
};

/// Makes a network by name. `section` holds the recipe's `model` keys (without `name`); unknown
/// options are errors. Weights are drawn from torch's global generator: seed it first.
std::shared_ptr<CapsNet> make_model(const std::string& name, const ModelContext& context,
                                    ConfigSection& section);

std::vector<std::string> model_names();

/// Adds a network of the user's own to the registry.
using ModelFactory =
    std::function<std::shared_ptr<CapsNet>(const ModelContext& context, ConfigSection& section)>;
void register_model(const std::string& name, ModelFactory factory);

}  // namespace remcaps
