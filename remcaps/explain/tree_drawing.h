// Parse trees drawn as SVG: nodes coloured by activation, edges by coupling or share of the
// evidence.
#pragma once

#include <string>
#include <vector>

#include "remcaps/explain/svg.h"
#include "remcaps/explain/tree_graph.h"

namespace remcaps {

/// A row of nodes has at most this many capsules.
constexpr int64_t kMostNodesPerLayer = 96;

struct TreeDrawing {
  std::string title = "", subtitle = "";
  std::vector<std::string> class_names = {};  ///< labels of the last layer; indices if empty
  std::string picture = "";  ///< data URI of the image, shown beside the tree; or empty
  bool legend = true;
  double width = 640;
};

/// Classes on top, primary capsules at the bottom. Capsules outside the tree are faint.
///
/// A layer of more than kMostNodesPerLayer capsules is drawn as tiles, one for each capsule type,
/// with a cell for each capsule that an edge starts from; layers below it are left out. Error if
/// there are more classes than that.
Svg draw_tree(const ParseTree& tree, const TreeDrawing& drawing);

}  // namespace remcaps
