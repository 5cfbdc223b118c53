// The inference graph of a network as data: what a network computes, without its C++ class.
//
// `remcaps export` stores it as JSON in the metadata of the file it writes. The runtime runs it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace remcaps {

/// One operation. Values are maps [C, H, W] or capsules [I, D]; every op is for one image.
///
/// op                       input -> output
/// convolution              map -> map
///   numbers: stride_y, stride_x, padding_y, padding_x, groups; tensors: weight, bias (optional)
/// batch_norm               map -> map
///   numbers: epsilon; tensors: weight, bias, mean, variance
/// instance_norm            map -> map
///   numbers: epsilon; tensors: weight, bias
/// relu                     map -> map; numbers: slope (0, or that of a leaky ReLU)
/// add                      two maps -> map
/// max_pool                 map -> map; numbers: kernel, stride, padding
/// squash                   map -> map; numbers: types, dim, epsilon; words: form
///   channel = type * dim + component; form: norm or exponential
/// capsules                 map -> capsules; numbers: types, dim; words: order
///   order: type-first (type, row, column) or type-last (row, column, type)
///   with words form and numbers epsilon the capsules are squashed, too
/// concatenate              several capsules -> capsules
/// dynamic_routing          capsules -> capsules
///   numbers: iterations, bias_every_iteration, epsilon, shared_over; tensors: weight, bias
///   of a compact network also number children (before) and word kept (which: "0-35,72-107")
///   tensor coupling (optional): [I, J], the same for all images, in place of iterations
/// scaled_distance_routing  as dynamic_routing; every image is routed by itself
/// self_attention_routing   capsules -> capsules
///   numbers: epsilon, shared_over; words: form, and optionally agreement (all or self) and
///   prior (rounded or exact)
///   tensors: weight, bias (the prior [I, J])
/// window_routing           capsules (type-first) -> capsules (type-first)
///   as dynamic_routing, with numbers types, height, width, kernel, stride
/// conv3d_routing           map -> map
///   numbers: dim, iterations, epsilon; words: squash_over (atoms or map)
///   tensors: weight, vote_bias (optional), bias (optional)
/// lengths                  capsules -> the result; numbers: epsilon
///   the last node: sqrt(sum of squares + epsilon) of each class capsule
struct GraphNode {
  std::string op;
  std::string name;                 ///< of its output, unique; the layer's name if it is a layer
  std::vector<std::string> inputs;  ///< names of earlier nodes, or kGraphInput
  std::map<std::string, double> numbers = {};
  std::map<std::string, std::string> words = {};
  std::map<std::string, std::string> tensors = {};  ///< role -> name in the file
};

constexpr const char* kGraphInput = "images";
/// The key of the graph in a file's metadata.
constexpr const char* kGraphMetadata = "graph";

/// How a picture of any size becomes the network's input.
struct PictureRule {
  int64_t resize = 0;     ///< with `crop`: resize to so many pixels first; 0: to the input's size
  bool antialias = true;  ///< whether a resize that shrinks merges all pixels, or only neighbours
  bool standardize = false;                       ///< each channel by its own mean and deviation
  std::vector<double> mean = {0.0}, std = {1.0};  ///< else by these: one number, or one per channel
};

struct NetworkGraph {
  std::string network;  ///< "dr-capsnet"
  int64_t channels = 0, height = 0, width = 0;
  PictureRule picture;
  std::vector<std::string> classes;
  /// Levels of the couplings of each routing layer, in the order of the nodes; 0: not quantized.
  std::vector<int64_t> levels;
  std::string level_form = "uniform";  ///< "uniform" or "bins" (Quantizer)
  std::vector<GraphNode> nodes;        ///< in the order in which they run

  /// Adds a node and returns its name.
  std::string add(GraphNode node);

  std::string to_text() const;
  /// Checks that each node reads what is there. Error names `source`.
  static NetworkGraph parse(const std::string& text, const std::string& source);
};

/// Whether an op routes: its couplings are a level of the parse tree.
bool is_routing(const GraphNode& node);

/// The same graph with fewer nodes: a batch norm or ReLU goes into the convolution in front of it,
/// if nobody else reads that. The convolution then has the numbers relu and norm_epsilon and the
/// tensors norm_weight, norm_bias, norm_mean and norm_variance.
NetworkGraph fused(NetworkGraph graph);

}  // namespace remcaps
