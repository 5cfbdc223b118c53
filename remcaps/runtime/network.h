// A trained network without libtorch: reads what `remcaps export` writes, and runs it on a CPU.
//
//   const remcaps::runtime::Network network("mine.safetensors");
//   const auto answer = network.run(network.prepare(picture));
//   network.graph().classes[answer.predicted(0)]
//
// A network does not change when it runs: several threads may use one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "remcaps/runtime/graph.h"

namespace remcaps {
class SafetensorsBytes;
}

namespace remcaps::runtime {

/// Bytes [height, width, channels], 1 (grey) or 3 (colour) channels.
struct Picture {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0, channels = 0;
};

/// A routing layer: one level of the parse tree. A fully connected layer has one position. A
/// convolutional one has couplings at each position; its children are the places of a window.
struct RoutingLayer {
  std::string name;
  int64_t positions = 1, children = 0, parents = 0;
  int64_t levels = 0;  ///< of its quantizer; 0: it has none

  int64_t couplings() const { return positions * children * parents; }
};

struct RunOptions {
  bool couplings = false;  ///< fill Answer::couplings and child_lengths
  bool quantize = false;   ///< round the couplings of the last iteration, as parse trees need it
  bool contributions = false;  ///< fill Answer::contributions, too; needs couplings
};

struct Answer {
  int64_t images = 0, classes = 0, pose_dim = 0;
  std::vector<float> lengths = {};                 ///< of the class capsules, [images, classes]
  std::vector<float> poses = {};                   ///< [images, classes, pose_dim]
  std::vector<std::vector<float>> couplings = {};  ///< per routing layer, [images, P, I, J]
  /// With the couplings: lengths of the capsules below each routing layer, [images, I]; empty if
  /// the layer is convolutional.
  std::vector<std::vector<float>> child_lengths = {};
  /// If asked for: what each child of Network::contribution_layer() contributes to the evidence for
  /// the predicted class, [images, I]. The evidence, ||s_j||, is their sum with bias_evidence.
  /// (docs/explain.md)
  std::vector<float> contributions = {};
  std::vector<float> evidence = {}, bias_evidence = {};  ///< [images]
  bool quantized = false;

  /// The class with the longest capsule.
  int64_t predicted(int64_t image) const;
};

class Network {
 public:
  /// Reads and checks the file, and packs its weights. Error if it is damaged, or if it has no
  /// graph.
  explicit Network(const std::string& path);
  /// The same, of a file in memory. Its bytes are not needed any more afterwards.
  explicit Network(const SafetensorsBytes& file);
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;

  const NetworkGraph& graph() const;
  const std::vector<RoutingLayer>& routing_layers() const;
  /// The routing layer whose children Answer::contributions are of: the lowest from which
  /// everything leads to the classes.
  size_t contribution_layer() const;
  int64_t contributing_capsules() const;  ///< how many children that is, I
  int64_t classes() const;
  int64_t pose_dim() const;  ///< numbers of a class capsule
  /// Floats of one input image, [C, H, W].
  int64_t input_floats() const;

  /// Threads that a run may use; by default as many as there are cores.
  void set_threads(int threads);

  /// A picture of any size as an input image: stretched, cropped if the network was trained so, and
  /// normalised. `invert` makes a negative.
  std::vector<float> prepare(const Picture& picture, bool invert = false) const;

  /// Runs images [images, C, H, W]. The answer for an image does not depend on the other images.
  Answer run(std::span<const float> images, const RunOptions& options = {}) const;

  /// The level of each coupling of a layer, [images, P, I, J]. The answer must be quantized and
  /// have couplings.
  std::vector<uint8_t> level_indices(const Answer& answer, size_t layer) const;

  /// The key of an image's parse tree at a layer: in the last layer the levels of the couplings to
  /// the predicted class, in others those of all couplings. (parse_tree/keys.h)
  std::string tree_key(const Answer& answer, int64_t image, size_t layer) const;

  /// Whether there is a saliency map: whether capsules with a place in the image are coupled with
  /// the classes through fully connected layers.
  bool has_saliency() const;

  /// Where in an image the answer for a class comes from, [H, W] of the input: the lengths of the
  /// capsules times their couplings to the class, each spread over the pixels that the capsule
  /// sees. The answer must have couplings. (explain/saliency.h)
  std::vector<float> saliency(const Answer& answer, int64_t image, int64_t class_index) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace remcaps::runtime
