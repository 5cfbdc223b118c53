// Parse trees: of one image, some images, each class, a whole data set.
#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/explain/tree_drawing.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

namespace {

FigureTable tree_table() {
  return {{"run", "tree", "kind", "layer", "capsule", "to_capsule", "value", "in_degree"}, {}};
}

// A row per node (value: activation) and per edge (value: coupling, or share of the evidence).
void add_tree(FigureTable& table, const std::string& run, const std::string& name,
              const ParseTree& tree) {
  for (size_t l = 0; l < tree.layers.size(); ++l)
    for (size_t n = 0; n < tree.layers[l].size(); ++n) {
      const TreeNode& node = tree.layers[l][n];
      table.add(run, name, node.in_tree ? "node" : "node outside", tree.names[l],
                static_cast<int64_t>(n), "", node.activation,
                l > 0 ? std::to_string(node.in_degree) : "");
    }
  for (const TreeEdge& edge : tree.edges)
    table.add(run, name, "edge", tree.names[static_cast<size_t>(edge.layer)], edge.from,
              std::to_string(edge.to), tree.strength(edge), "");
}

std::string size_line(const ParseTree& tree) {
  const auto counted = [](int64_t count, const char* noun) {
    return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
  };
  return fmt::format("{}, {}", counted(tree.nodes_in_tree(), "capsule"),
                     counted(static_cast<int64_t>(tree.edges.size()), "connection"));
}

struct SampleTree {
  ParseTree tree;
  TreeDrawing drawing;
};

SampleTree sample_tree(const ShownRun& run, const Batch& batch, const Forward& forward, int64_t row,
                       const TreeOptions& options) {
  const int64_t predicted = predicted_classes(forward)[row].item<int64_t>();
  const int64_t label = batch.labels[row].item<int64_t>();
  SampleTree sample;
  sample.tree = parse_tree(capsule_layers(forward, row), {predicted}, options);
  sample.drawing.title = run.label;
  sample.drawing.subtitle =
      fmt::format("{}{}: {}", run.class_name(predicted),
                  label == predicted ? "" : fmt::format(" (in truth {})", run.class_name(label)),
                  size_line(sample.tree));
  sample.drawing.class_names = run.run.class_names;
  sample.drawing.picture = png_data_uri(run.picture(batch.images[row]));
  return sample;
}

Figure samples(const FigureOptions& options, const std::string& title, size_t most) {
  const std::vector<ShownRun> runs = load_shown_runs(options);
  const std::vector<int64_t> places = shown_images(options, runs[0], most);
  FigureTable table = tree_table();
  std::vector<std::vector<Svg>> by_run;
  for (const ShownRun& run : runs) {
    const Batch batch = run.batch(places);
    const Forward forward = run.forward(batch);
    std::vector<Svg> drawings;
    for (size_t i = 0; i < places.size(); ++i) {
      SampleTree sample = sample_tree(run, batch, forward, static_cast<int64_t>(i), options.tree);
      sample.drawing.width = 560;
      sample.drawing.legend = i == 0 && by_run.empty();
      drawings.push_back(draw_tree(sample.tree, sample.drawing));
      add_tree(table, run.label, fmt::format("{}:{}", options.split, places[i]), sample.tree);
    }
    by_run.push_back(std::move(drawings));
  }
  // One row per image, one column per run: the trees to compare stand side by side.
  std::vector<Svg> all;
  for (size_t i = 0; i < places.size(); ++i)
    for (const auto& drawings : by_run) all.push_back(drawings[i]);
  const size_t columns = runs.size() == 1 ? std::min<size_t>(places.size(), 3) : runs.size();
  return {title, arrange(all, columns, title, runs[0].run.recipe.dataset.name), std::move(table)};
}

TreeAverage averages(const ShownRun& run) {
  TreeAverage average;
  run.pass("parse trees of " + run.label,
           [&](const Batch&, const Forward& forward) { average.add(forward); });
  return average;
}

}  // namespace

Figure parse_tree_figure(const FigureOptions& options) {
  return samples(options, "Parse tree of an image", 1);
}

Figure sample_trees_figure(const FigureOptions& options) {
  return samples(options, "Parse trees of some images", 10);
}

Figure dataset_trees_figure(const FigureOptions& options) {
  const std::string title = "Mean parse tree of a data set";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  FigureTable table = tree_table();
  std::vector<Svg> drawings;
  for (const ShownRun& run : runs) {
    const TreeAverage average = averages(run);
    std::vector<int64_t> roots;  // every class that was predicted for some image
    const std::vector<int64_t> counts = average.images_per_class();
    for (size_t j = 0; j < counts.size(); ++j)
      if (counts[j] > 0) roots.push_back(static_cast<int64_t>(j));
    const ParseTree tree = parse_tree(average.of_all(), roots, options.tree);
    drawings.push_back(
        draw_tree(tree, {.title = run.label,
                         .subtitle = fmt::format("mean over {} images: {}",
                                                 with_commas(average.images()), size_line(tree)),
                         .class_names = run.run.class_names,
                         .legend = drawings.empty()}));
    add_tree(table, run.label, "data set", tree);
  }
  return {title, arrange(drawings, 2, title, runs[0].data_line()), std::move(table)};
}

Figure class_trees_figure(const FigureOptions& options) {
  const std::string title = "Mean parse tree of each class";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  check_same_classes(runs);
  FigureTable table = tree_table();
  std::vector<TreeAverage> average;
  for (const ShownRun& run : runs) average.push_back(averages(run));
  std::vector<Svg> drawings;
  for (int64_t j = 0; j < runs[0].classes(); ++j) {
    for (size_t r = 0; r < runs.size(); ++r) {
      const int64_t images = average[r].images_per_class()[static_cast<size_t>(j)];
      TreeDrawing drawing;
      drawing.title = fmt::format("{}, {}", runs[0].class_name(j), runs[r].label);
      drawing.class_names = runs[r].run.class_names;
      drawing.width = 560;
      drawing.legend = drawings.empty();
      if (images == 0) {
        drawing.subtitle = "no image was predicted as this class";
        drawings.push_back(draw_tree(parse_tree(average[r].of_all(), {}), drawing));
        continue;
      }
      const ParseTree tree = parse_tree(average[r].of_class(j), {j}, options.tree);
      drawing.subtitle =
          fmt::format("mean over {} images: {}", with_commas(images), size_line(tree));
      drawings.push_back(draw_tree(tree, drawing));
      add_tree(table, runs[r].label, runs[0].class_name(j), tree);
    }
  }
  const size_t columns = runs.size() == 1 ? 2 : runs.size();
  return {title, arrange(drawings, columns, title, runs[0].data_line()), std::move(table)};
}

}  // namespace remcaps
