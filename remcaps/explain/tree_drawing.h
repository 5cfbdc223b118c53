// Parse trees drawn as SVG: nodes coloured by activation, edges by coupling.
#pragma once

#include <string>
#include <vector>

#include "remcaps/explain/parse_tree_graph.h"
#include "remcaps/explain/svg.h"

namespace remcaps {

/// More capsules in a layer than this cannot be told apart in a drawing.
constexpr int64_t kMostNodesPerLayer = 96;

struct TreeDrawing {
  std::string title = "", subtitle = "";
  std::vector<std::string> class_names = {};  ///< labels of the last layer; indices where empty
  std::string picture = "";  ///< data URI of the image, shown beside the tree; or empty
  bool legend = true;
  double width = 640;
};

/// Classes on top, primary capsules at the bottom. Capsules outside the tree are faint. Error where
/// a layer has more than kMostNodesPerLayer capsules.
Svg draw_tree(const ParseTree& tree, const TreeDrawing& drawing);

}  // namespace remcaps
