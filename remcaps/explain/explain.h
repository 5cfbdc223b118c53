// Writes all that a network can show about one image: saliency map, parse tree, perturbations, and
// tells what its answer is made of.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/explain/saliency.h"
#include "remcaps/explain/tree_graph.h"
#include "remcaps/runs/load.h"

namespace remcaps {

constexpr double kPerturbationRange = 0.25;  ///< the default

struct ExplainOptions {
  /// What to show. If all three are off: all that the network can show.
  bool saliency = false, tree = false, perturbations = false;
  std::string layer = "";  ///< saliency: routing layer to look at; empty: the last with a grid
  Placement placement = Placement::kReceptiveFields;  ///< saliency
  /// Its `of` also chooses the saliency map: contributions, or the paper's couplings x activations.
  TreeOptions tree_options = {.of = TreeOf::kContributions};
  std::optional<double> range = {};  ///< perturbations: how far each pose dimension is moved
};

/// The class whose capsule is the longest.
struct Answer {
  int64_t predicted = 0;
  double activation = 0;  ///< ||v_j||
};

/// What the evidence for the answer with quantized couplings is made of: `supporting` - `opposing` +
/// `bias` is ||s_j||, the length of the class capsule's pre-activation.
struct AnswerEvidence {
  std::string layer;                    ///< the routing layer whose children are looked at
  double supporting = 0, opposing = 0;  ///< sums of the positive and of the negative contributions
  double bias = 0;                      ///< what the biases contribute
  int64_t capsules = 0;                 ///< that contribute anything
  int64_t half = 0;                     ///< effective parts (capsule/backtrack.h)
  double spread = 0;

  double total() const { return supporting - opposing + bias; }
};

struct ExplanationFiles {
  AnswerEvidence evidence;
  Answer plain;                              ///< with plain couplings, as `predict` gives it
  Answer quantized;                          ///< with quantized couplings, as the pictures show it
  std::vector<std::filesystem::path> files;  ///< written
  /// If nothing was asked for by name: what the network cannot show, and why.
  std::vector<std::string> left_out;
};

/// Writes
///   <stem>-overlay.png             the image, the saliency map and the map over the image
///   <stem>-saliency.safetensors    the raw maps: "map" [H, W], "cells.0" [M, N], ..., and of
///                                  contributions also "positive", "negative" [H, W] and
///                                  "contributions" [I]
///   <stem>-tree.svg                the parse tree
///   <stem>-perturbations.png       a row per pose dimension, 11 steps
/// from one image, float32 [1, C, H, W], normalised, on the run's device. Couplings are quantized
/// as the run's recipe says, which may change the answer. Error if something was asked for by name
/// that the network cannot show.
ExplanationFiles explain_image(const LoadedRun& run, const torch::Tensor& image,
                               const ExplainOptions& options, const std::filesystem::path& stem);

}  // namespace remcaps
