/// @file
/// A trained network inside a program of your own.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/explain/tree_graph.h"
#include "remcaps/models/model.h"

namespace remcaps {

struct LoadedRun;

/// The answer of a network for one image.
struct Classification {
  int64_t class_index = 0;      ///< the class whose capsule is the longest
  std::string class_name;       ///< its name, or its index if the network has no names
  double length = 0;            ///< length of that capsule, 0 to 1: how sure the network is
  std::vector<double> lengths;  ///< lengths of all class capsules
};

/// How a network saw one image. Couplings are quantized as the network's recipe says.
struct Explanation {
  Classification answer;       ///< with quantized couplings
  Classification unquantized;  ///< with the couplings as they are: what classify() returns
  /// Couplings of the last routing layer: [I, J], or [P, I, J] if the layer is convolutional.
  torch::Tensor couplings;
  /// The paper's view of where the network looked: couplings x activations, [H, W], not negative.
  /// Undefined if its capsules lie on no grid.
  torch::Tensor saliency;
  /// The paper's parse tree, of couplings. Nothing if the class capsules are not fully connected.
  std::optional<ParseTree> tree;

  /// The evidence for the answer: the length of its capsule before it is squashed. It is the sum of
  /// `contributions` and `bias_contribution`.
  double evidence = 0;
  /// What each capsule of the lowest layer that leads to the classes contributes to the answer,
  /// positive or negative, [I].
  torch::Tensor contributions;
  /// What the biases contribute.
  double bias_contribution = 0;
  /// Effective parts: the least number of capsules that carry half of the positive contributions,
  /// and exp of the entropy of their shares.
  int64_t parts_half = 0;
  double parts_spread = 0;
  /// Contributions on the pixels that the capsules see, [H, W]: positive for the answer, negative
  /// against it. Undefined if the capsules lie on no grid.
  torch::Tensor contribution_map;
  /// The parse tree of the contributions that carry half of the evidence. Nothing if the class
  /// capsules are not fully connected.
  std::optional<ParseTree> contribution_tree;
};

/// A trained network. Copies share the weights. Its functions may be called from several threads.
class Network {
 public:
  /// Loads a network.
  ///
  /// @param name    "zoo:mnist/dr-capsnet-rem" for a network that comes with remcaps, or the path of
  ///                a weights file or of a run folder.
  /// @param device  "cpu", "cuda" or "cuda:1".
  /// @throws Error  if the file is missing, damaged or does not fit the network it names.
  static Network load(const std::string& name, const std::string& device = "cpu");

  /// Name of the network's architecture, "dr-capsnet".
  const std::string& architecture() const;
  /// Names of the classes. Empty if the network was trained without names.
  const std::vector<std::string>& class_names() const;
  /// Size of the images it takes.
  ImageShape input() const;

  /// Reads a PNG or JPEG file of any size as the network's input, float32 [1, C, H, W].
  ///
  /// The picture is stretched to the input's size. It becomes grey if the network takes grey
  /// images. `invert` makes the negative: use it for a dark digit on white paper and a network
  /// trained on MNIST, whose digits are white on black.
  torch::Tensor read(const std::filesystem::path& picture, bool invert = false) const;

  /// Turns pixels, uint8 [B, C, H, W], into the network's input: resized, cropped and normalised as
  /// in its evaluation.
  torch::Tensor prepare(const torch::Tensor& pixels) const;

  /// Classifies images that read() or prepare() made, float32 [B, C, H, W].
  std::vector<Classification> classify(const torch::Tensor& images) const;
  /// Classifies a picture file.
  Classification classify(const std::filesystem::path& picture) const;

  /// Explains one image that read() or prepare() made, float32 [1, C, H, W]. `levels` is K for all
  /// routing layers; without it couplings are quantized as the network's recipe says.
  Explanation explain(const torch::Tensor& image, std::optional<int64_t> levels = {}) const;
  /// Explains a picture file.
  Explanation explain(const std::filesystem::path& picture) const;

  /// The network itself, for everything else libtorch can do with it. Images go in as classify()
  /// takes them.
  CapsNet& model() const;

  /// All that was loaded, for the functions of remcaps/runs and remcaps/evaluation.
  const LoadedRun& run() const;

 private:
  struct State;
  explicit Network(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace remcaps
