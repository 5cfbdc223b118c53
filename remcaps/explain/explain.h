// Everything a network can show of how it saw one image, as files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/explain/parse_tree_graph.h"
#include "remcaps/runs/load.h"

namespace remcaps {

constexpr double kPerturbationRange = 0.25;  ///< where no other is asked for

struct ExplainOptions {
  /// What to show; all three off: everything the network can, and what the options below are about.
  bool saliency = false, tree = false, perturbations = false;
  std::string layer = "";  ///< saliency: routing layer to look at; empty: the last with a grid
  TreeOptions tree_options = {};
  std::optional<double> range = {};  ///< perturbations: how far each pose dimension is moved
};

/// The class whose capsule is the longest.
struct Answer {
  int64_t predicted = 0;
  double activation = 0;  ///< ||v_j||
};

struct Explanation {
  Answer plain;      ///< with the couplings as they are: what `predict` says
  Answer quantized;  ///< with quantized couplings: what the pictures are of
  std::vector<std::filesystem::path> files;  ///< written
  /// Where everything was asked for: what the network cannot show, and why.
  std::vector<std::string> left_out;
};

/// Writes
///   <stem>-overlay.png             the image, the saliency map and the map over the image
///   <stem>-saliency.safetensors    the raw maps: "map" [H, W], "cells.0" [M, N], ...
///   <stem>-tree.svg                the parse tree
///   <stem>-perturbations.png       a row per pose dimension, 11 steps
/// from one image, float32 [1, C, H, W], normalised, on the run's device. Couplings are quantized
/// as the run's recipe says, which may change the answer. Error where something was asked for by
/// name that the network cannot show.
Explanation explain_image(const LoadedRun& run, const torch::Tensor& image,
                          const ExplainOptions& options, const std::filesystem::path& stem);

}  // namespace remcaps
