#include "remcaps/explain/tree_drawing.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/explain/capsule_tiles.h"

namespace remcaps {

namespace {

constexpr double kMargin = 16, kLayerGap = 84, kNameWidth = 74, kPicture = 84, kLegend = 44;
// Names of the classes; those in the tree are bold.
constexpr double kLabelSize = 12, kLabelAngle = 35, kLabelOffset = 3;

struct Layout {
  double left = 0, right = 0, top = 0;
  size_t depth = 0;
  size_t lowest = 0;                  // the first layer that is drawn
  std::optional<CapsuleTiles> tiles;  // of that layer, if it is large
  bool bundled = false;               // its edges: too many to be told apart

  bool tiled(size_t layer) const { return tiles && layer == lowest; }
  double x(size_t count, int64_t index) const {
    return left + (right - left) * (static_cast<double>(index) + 0.5) / static_cast<double>(count);
  }
  double y(size_t layer) const { return top + kLayerGap * static_cast<double>(depth - 1 - layer); }
  double bottom() const { return tiles ? tiles->bottom + 10 : y(lowest) + 24; }
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

struct Line {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double strength = 0;
  std::string title;
};

Stroke edge_stroke(double value) {
  const double strength = std::clamp(value, 0.0, 1.0);
  return {.colour = strength_paint(strength),
          .width = 0.8 + 4.2 * strength,
          .opacity = 0.40 + 0.55 * strength};
}

// What the numbers of a tree's edges are.
const char* strength_name(const ParseTree& tree) {
  return tree.of == TreeOf::kCouplings ? "coupling" : "share of the evidence";
}

Line single_line(const ParseTree& tree, const Layout& layout, const TreeEdge& edge) {
  const size_t layer = static_cast<size_t>(edge.layer), from = static_cast<size_t>(edge.from);
  const double x2 = layout.x(tree.layers[layer + 1].size(), edge.to), y2 = layout.y(layer + 1);
  const std::string to = fmt::format("{} {}: {} {:.3f}", tree.names[layer + 1], edge.to,
                                     strength_name(tree), tree.strength(edge));
  if (layout.tiled(layer)) {
    const CapsuleTiles::Cell& cell = layout.tiles->cells[from];
    return {
        cell.x, cell.y, x2, y2, tree.strength(edge), fmt::format("{} \u2192 {}", cell.name, to)};
  }
  return {layout.x(tree.layers[layer].size(), edge.from),
          layout.y(layer),
          x2,
          y2,
          tree.strength(edge),
          fmt::format("{} {} \u2192 {}", tree.names[layer], edge.from, to)};
}

// One line for each tile and parent.
void add_bundles(const ParseTree& tree, const Layout& layout, std::vector<Line>& lines) {
  struct Bundle {
    int64_t count = 0;
    double sum = 0;
  };
  std::map<std::pair<size_t, int64_t>, Bundle> bundles;  // by tile and parent
  for (const TreeEdge& edge : tree.edges) {
    if (!layout.tiled(static_cast<size_t>(edge.layer))) continue;
    Bundle& bundle = bundles[{layout.tiles->cells[static_cast<size_t>(edge.from)].tile, edge.to}];
    ++bundle.count;
    bundle.sum += tree.strength(edge);
  }
  const size_t above = layout.lowest + 1;
  for (const auto& [ends, bundle] : bundles) {
    const CapsuleTiles::Tile& tile = layout.tiles->tiles[ends.first];
    lines.push_back(
        {tile.x + tile.width / 2, tile.y, layout.x(tree.layers[above].size(), ends.second),
         layout.y(above), bundle.sum / static_cast<double>(tile.capsules),
         fmt::format("{} \u2192 {} {}: {} of {} capsules, their mean {} {:.3f}", tile.name,
                     tree.names[above], ends.second, bundle.count, tile.capsules,
                     strength_name(tree), bundle.sum / static_cast<double>(bundle.count))});
  }
}

void draw_edges(Svg& svg, const ParseTree& tree, const Layout& layout) {
  std::vector<Line> lines;
  for (const TreeEdge& edge : tree.edges) {
    const size_t layer = static_cast<size_t>(edge.layer);
    if (layer < layout.lowest || (layout.bundled && layout.tiled(layer))) continue;
    lines.push_back(single_line(tree, layout, edge));
  }
  if (layout.bundled) add_bundles(tree, layout, lines);
  // Strong edges last: they must not be covered.
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.strength < b.strength; });
  for (const Line& line : lines) {
    const double middle = (line.y1 + line.y2) / 2;
    svg.path(fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", line.x1,
                         line.y1, line.x1, middle, line.x2, middle, line.x2, line.y2),
             edge_stroke(line.strength), line.title);
  }
}

void draw_tiles(Svg& svg, const CapsuleTiles& laid) {
  for (const CapsuleTiles::Tile& tile : laid.tiles) {
    svg.ground(tile.x, tile.y, tile.width, tile.height);
    svg.rect(tile.x, tile.y, tile.width, tile.height, "currentColor", tile.name, 0.08);
  }
}

void draw_cells(Svg& svg, const ParseTree& tree, const Layout& layout) {
  const CapsuleTiles& laid = *layout.tiles;
  std::vector<double> strengths(laid.cells.size(), 0);  // the strongest one of each capsule
  for (const TreeEdge& edge : tree.edges)
    if (layout.tiled(static_cast<size_t>(edge.layer))) {
      double& strongest = strengths[static_cast<size_t>(edge.from)];
      strongest = std::max(strongest, tree.strength(edge));
    }
  const std::vector<TreeNode>& nodes = tree.layers[layout.lowest];
  double largest = 0;
  for (const TreeNode& node : nodes) largest = std::max(largest, node.activation);
  for (size_t n = 0; n < strengths.size(); ++n) {
    if (strengths[n] <= 0) continue;
    const CapsuleTiles::Cell& cell = laid.cells[n];
    const double activation = nodes[n].activation;
    const double side = cell.side * cell_side(activation, largest);
    svg.rect(cell.x - side / 2, cell.y - side / 2, side, side, strength_paint(strengths[n]),
             fmt::format("{}: {} {:.3f}, activation {:.3f}", cell.name, strength_name(tree),
                         strengths[n], activation));
  }
}

void draw_nodes(Svg& svg, const ParseTree& tree, const Layout& layout,
                const std::vector<std::string>& class_names) {
  for (size_t l = layout.lowest; l < tree.layers.size(); ++l) {
    const auto& nodes = tree.layers[l];
    svg.text(kMargin, layout.y(l) + 4, tree.names[l], {.size = 11, .opacity = 0.75});
    if (layout.tiled(l)) {
      svg.text(kMargin, layout.y(l) + 18, with_commas(static_cast<int64_t>(nodes.size())),
               {.size = 10, .opacity = 0.75});
      draw_cells(svg, tree, layout);
      continue;
    }
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
        svg.circle(x, y, radius, strength_paint(node.activation), {.width = 1.2}, title);
      else
        svg.circle(x, y, radius * 0.55, "none", {.width = 0.8, .opacity = 0.35}, title);
      if (classes)
        svg.text(x + kLabelOffset, y - radius - 6, named ? name : std::to_string(index),
                 {.size = node.in_tree ? kLabelSize : 10.0,
                  .bold = node.in_tree,
                  .opacity = node.in_tree ? 1 : 0.55,
                  .rotate = named ? -kLabelAngle : 0.0});
    }
  }
}

void draw_legend(Svg& svg, const ParseTree& tree, const Layout& layout) {
  const double left = layout.left, top = layout.bottom();
  const bool tiles = layout.tiles.has_value();
  const double edges = left + (tiles ? 220 : 160);
  svg.colour_scale(left, top + 12, 120,
                   !tiles                          ? "node: activation"
                   : tree.of == TreeOf::kCouplings ? "class: activation, cell: coupling"
                                                   : "class: activation, cell: share",
                   "0", "1", strength_paint);
  for (int i = 0; i <= 4; ++i)
    svg.line(edges + 30 * i, top + 16, edges + 26 + 30 * i, top + 16, edge_stroke(i / 4.0));
  svg.text(edges, top + 7, fmt::format("edge: {}", strength_name(tree)), {.size = 11});
  svg.text(edges, top + 33, "0", {.size = 10, .opacity = 0.75});
  svg.text(edges + 146, top + 33, "1", {.size = 10, .anchor = TextAnchor::kEnd, .opacity = 0.75});
  if (!layout.tiles) return;
  const bool places = layout.tiles->have_places;
  svg.text(left, top + 52,
           fmt::format("tile: {}{}", places ? "a capsule type" : "the capsules in their order",
                       layout.bundled ? ", its edge the mean of all in it" : ""),
           {.size = 10, .opacity = 0.75});
  svg.text(left, top + 66,
           fmt::format("cell: a capsule{}, its colour the {}, its side the activation",
                       places ? " at its place" : "", strength_name(tree)),
           {.size = 10, .opacity = 0.75});
}

bool is_large(const ParseTree& tree, size_t layer) {
  return static_cast<int64_t>(tree.layers[layer].size()) > kMostNodesPerLayer;
}

}  // namespace

Svg draw_tree(const ParseTree& tree, const TreeDrawing& drawing) {
  const size_t classes = tree.layers.size() - 1;
  check(!is_large(tree, classes),
        "layer {} has {} capsules; a parse tree of more than {} classes cannot be drawn legibly",
        tree.names[classes], tree.layers[classes].size(), kMostNodesPerLayer);
  double label_height = 16;
  for (const std::string& name : drawing.class_names)
    label_height = std::max(label_height, 12 + 0.6 * text_width(name, kLabelSize));
  const double head = (drawing.title.empty() ? 0 : 22) + (drawing.subtitle.empty() ? 0 : 18);
  Layout layout;
  layout.depth = tree.layers.size();
  layout.left = kMargin + kNameWidth;
  // The picture stands to the right of the nodes, and the last classes' slanted names end there.
  layout.right = drawing.width - kMargin - (drawing.picture.empty() ? 0 : kPicture + 12);
  const double tiles_right = layout.right;
  layout.make_room_for(drawing.class_names, drawing.width);
  layout.top = kMargin + head + label_height + 12;
  for (size_t l = 0; l < classes; ++l)
    if (is_large(tree, l)) layout.lowest = l;
  const double lowest_y = layout.y(layout.lowest);
  const bool tiled = is_large(tree, layout.lowest);
  if (tiled) {
    layout.tiles = lay_out_tiles(static_cast<int64_t>(tree.layers[layout.lowest].size()),
                                 tree.grids[layout.lowest], layout.left, tiles_right, lowest_y);
    layout.bundled = std::count_if(tree.edges.begin(), tree.edges.end(), [&](const TreeEdge& edge) {
                       return layout.tiled(static_cast<size_t>(edge.layer));
                     }) > kMostNodesPerLayer;
  }
  Svg svg(drawing.width, layout.bottom() + (drawing.legend ? kLegend + (tiled ? 34 : 0) : 0));

  if (!drawing.title.empty())
    svg.text(kMargin, kMargin + 12, drawing.title, {.size = 15, .bold = true});
  if (!drawing.subtitle.empty())
    svg.text(kMargin, kMargin + head - 6, drawing.subtitle, {.size = 11.5, .opacity = 0.75});
  if (!drawing.picture.empty())
    svg.image(drawing.width - kMargin - kPicture, lowest_y - (tiled ? 0 : kPicture - 12), kPicture,
              kPicture, drawing.picture);
  // Single edges start at their cells, over the tiles; bundled ones go behind the tiles.
  if (tiled && !layout.bundled) draw_tiles(svg, *layout.tiles);
  draw_edges(svg, tree, layout);
  if (layout.bundled) draw_tiles(svg, *layout.tiles);
  draw_nodes(svg, tree, layout, drawing.class_names);
  if (drawing.legend) draw_legend(svg, tree, layout);
  return svg;
}

}  // namespace remcaps
