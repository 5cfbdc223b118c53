#include "remcaps/explain/tree_drawing.h"

#include <fmt/format.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/explain/colour_map.h"

namespace remcaps {

namespace {

constexpr double kMargin = 16, kLayerGap = 84, kNameWidth = 74, kPicture = 84;
// Names of the classes; those in the tree are bold.
constexpr double kLabelSize = 12, kLabelAngle = 35, kLabelOffset = 3;

struct Layout {
  double left = 0, right = 0, top = 0;
  size_t depth = 0;

  double x(size_t count, int64_t index) const {
    return left + (right - left) * (static_cast<double>(index) + 0.5) / static_cast<double>(count);
  }
  double y(size_t layer) const { return top + kLayerGap * static_cast<double>(depth - 1 - layer); }
  double radius(size_t count) const {
    return std::clamp((right - left) / static_cast<double>(count) * 0.36, 2.5, 9.0);
  }
  // Moves the right end until no name reaches over the drawing's.
  void make_room_for(const std::vector<std::string>& names, double width) {
    const double count = static_cast<double>(names.size());
    for (size_t n = 0; n < names.size(); ++n) {
      const double reach = kLabelOffset + std::cos(kLabelAngle * M_PI / 180) *
                                              text_width(names[n], kLabelSize, /*bold=*/true);
      const double room = std::max(width - kMargin / 2 - reach, (left + width) / 2) - left;
      right = std::min(right, left + room * count / (static_cast<double>(n) + 0.5));
    }
  }
};

// Both ends of the map would vanish on a white or a black page.
std::string edge_colour(double coupling) {
  return to_hex(map_colour(0.34 + 0.46 * coupling));
}

void draw_edges(Svg& svg, const ParseTree& tree, const Layout& layout) {
  // Strong edges last: they must not be covered.
  std::vector<TreeEdge> edges = tree.edges;
  std::sort(edges.begin(), edges.end(),
            [](const TreeEdge& a, const TreeEdge& b) { return a.coupling < b.coupling; });
  for (const TreeEdge& edge : edges) {
    const size_t layer = static_cast<size_t>(edge.layer);
    const double x1 = layout.x(tree.layers[layer].size(), edge.from), y1 = layout.y(layer);
    const double x2 = layout.x(tree.layers[layer + 1].size(), edge.to), y2 = layout.y(layer + 1);
    const double strength = std::clamp(edge.coupling, 0.0, 1.0), middle = (y1 + y2) / 2;
    svg.path(fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x1, y1, x1,
                         middle, x2, middle, x2, y2),
             {.colour = edge_colour(strength),
              .width = 0.8 + 4.2 * strength,
              .opacity = 0.40 + 0.55 * strength},
             fmt::format("{} {} \u2192 {} {}: coupling {:.3f}", tree.names[layer], edge.from,
                         tree.names[layer + 1], edge.to, edge.coupling));
  }
}

void draw_nodes(Svg& svg, const ParseTree& tree, const Layout& layout,
                const std::vector<std::string>& class_names) {
  for (size_t l = 0; l < tree.layers.size(); ++l) {
    const auto& nodes = tree.layers[l];
    const bool classes = l + 1 == tree.layers.size();
    const double radius = layout.radius(nodes.size());
    for (size_t n = 0; n < nodes.size(); ++n) {
      const TreeNode& node = nodes[n];
      const int64_t index = static_cast<int64_t>(n);
      const double x = layout.x(nodes.size(), index), y = layout.y(l);
      const bool named = classes && n < class_names.size();
      const std::string name = named ? class_names[n] : fmt::format("{} {}", tree.names[l], index);
      const std::string title =
          fmt::format("{}: activation {:.3f}{}", name, node.activation,
                      l > 0 ? fmt::format(", in-degree {}", node.in_degree) : "");
      if (node.in_tree)
        svg.circle(x, y, radius, to_hex(map_colour(node.activation)), {.width = 1.2}, title);
      else
        svg.circle(x, y, radius * 0.55, "none", {.width = 0.8, .opacity = 0.35}, title);
      if (classes)
        svg.text(x + kLabelOffset, y - radius - 6, named ? name : std::to_string(index),
                 {.size = node.in_tree ? kLabelSize : 10.0,
                  .bold = node.in_tree,
                  .opacity = node.in_tree ? 1 : 0.55,
                  .rotate = named ? -kLabelAngle : 0.0});
    }
    svg.text(kMargin, layout.y(l) + 4, tree.names[l], {.size = 11, .opacity = 0.75});
  }
}

}  // namespace

Svg draw_tree(const ParseTree& tree, const TreeDrawing& drawing) {
  for (size_t l = 0; l < tree.layers.size(); ++l)
    check(static_cast<int64_t>(tree.layers[l].size()) <= kMostNodesPerLayer,
          "layer {} has {} capsules; a parse tree of more than {} a layer cannot be drawn legibly",
          tree.names[l], tree.layers[l].size(), kMostNodesPerLayer);
  double label_height = 16;
  for (const std::string& name : drawing.class_names)
    label_height = std::max(label_height, 12 + 0.6 * text_width(name, kLabelSize));
  const double head = (drawing.title.empty() ? 0 : 22) + (drawing.subtitle.empty() ? 0 : 18);
  Layout layout;
  layout.depth = tree.layers.size();
  layout.left = kMargin + kNameWidth;
  // The picture stands to the right of the nodes, and the last classes' slanted names end there.
  layout.right = drawing.width - kMargin - (drawing.picture.empty() ? 0 : kPicture + 12);
  layout.make_room_for(drawing.class_names, drawing.width);
  layout.top = kMargin + head + label_height + 12;
  const double bottom = layout.y(0) + 24;
  Svg svg(drawing.width, bottom + (drawing.legend ? 44 : 0));

  if (!drawing.title.empty())
    svg.text(kMargin, kMargin + 12, drawing.title, {.size = 15, .bold = true});
  if (!drawing.subtitle.empty())
    svg.text(kMargin, kMargin + head - 6, drawing.subtitle, {.size = 11.5, .opacity = 0.75});
  if (!drawing.picture.empty())
    svg.image(drawing.width - kMargin - kPicture, layout.y(0) - kPicture + 12, kPicture, kPicture,
              drawing.picture);
  draw_edges(svg, tree, layout);
  draw_nodes(svg, tree, layout, drawing.class_names);
  if (drawing.legend) {
    svg.colour_scale(layout.left, bottom + 12, 120, "node: activation");
    for (int i = 0; i <= 4; ++i) {
      const double strength = i / 4.0, x = layout.left + 160 + 30 * i;
      svg.line(x, bottom + 16, x + 26, bottom + 16,
               {.colour = edge_colour(strength),
                .width = 0.8 + 4.2 * strength,
                .opacity = 0.40 + 0.55 * strength});
    }
    svg.text(layout.left + 160, bottom + 7, "edge: coupling", {.size = 11});
    svg.text(layout.left + 160, bottom + 33, "0", {.size = 10, .opacity = 0.75});
    svg.text(layout.left + 160 + 146, bottom + 33, "1",
             {.size = 10, .anchor = TextAnchor::kEnd, .opacity = 0.75});
  }
  return svg;
}

}  // namespace remcaps
