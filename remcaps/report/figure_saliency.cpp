// Saliency maps, and whether they lie on the object.
#include <map>

#include "remcaps/base/error.h"
#include "remcaps/explain/pasted.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_gallery.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

namespace {

// A map of each image and its values by place: contributions, or the paper's couplings x
// activations.
struct ShownMap {
  Tensor map;                 // [B, H, W]; what is for the class and against it, or nonnegative
  std::vector<Tensor> cells;  // [B, M, N] of each grid
  bool signs = false;         // contributions: the map has both signs

  Picture over(const Picture& picture, int64_t image) const {
    return signs ? balance_overlay(picture, map[image]) : overlay(picture, map[image]);
  }
};

ShownMap map_of(const FigureOptions& options, const ShownRun& run, const Forward& forward) {
  const auto& routings = forward.routings;
  const size_t at = saliency_layer(routings, run.run.model->name(), options.layer);
  const Tensor classes = predicted_classes(forward);
  const ImageShape input = run.run.model->input();
  if (options.tree.of == TreeOf::kCouplings) {
    Saliency found = saliency(routings, at, classes, input, options.placement);
    return {found.map, std::move(found.cells), false};
  }
  const EvidenceMap found = evidence_map(routings, at, classes, input, options.placement);
  ShownMap shown{found.net(), {}, true};
  for (const CapsuleGrid& grid : routings[at].grids)
    shown.cells.push_back(on_grid(found.evidence.children, grid).sum(1));
  return shown;
}

// What the colours of overlays stand for.
void add_scale(Gallery& gallery, const FigureOptions& options) {
  gallery.colour_scale = options.tree.of == TreeOf::kCouplings;
  gallery.scale_label = "saliency, of each map";
  if (!gallery.colour_scale) gallery.subtitle += "; orange: for the class, blue: against it";
}

FigureTable map_table() {
  return {{"run", "image", "true_class", "predicted_class", "grid", "row", "column", "saliency"},
          {}};
}

void add_maps(FigureTable& table, const ShownRun& run, const std::string& image, int64_t label,
              int64_t predicted, const std::vector<Tensor>& grids, int64_t row) {
  for (size_t g = 0; g < grids.size(); ++g) {
    const Tensor cells = grids[g][row].to(torch::kCPU, torch::kDouble).contiguous();
    const auto value = cells.accessor<double, 2>();
    for (int64_t m = 0; m < cells.size(0); ++m)
      for (int64_t n = 0; n < cells.size(1); ++n)
        table.add(run.label, image, run.class_name(label), run.class_name(predicted),
                  static_cast<int64_t>(g), m, n, value[m][n]);
  }
}

// Overlays of some images as one row of a gallery.
GalleryRow overlay_row(const FigureOptions& options, const ShownRun& run,
                       const std::vector<int64_t>& places, FigureTable& table) {
  const Batch batch = run.batch(places);
  const Forward forward = run.forward(batch);
  const ShownMap shown = map_of(options, run, forward);
  const Tensor predicted = predicted_classes(forward);
  GalleryRow row{run.label, {}};
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t b = static_cast<int64_t>(i);
    const int64_t guess = predicted[b].item<int64_t>();
    row.cells.push_back({shown.over(run.picture(batch.images[b]), b), run.class_name(guess)});
    add_maps(table, run, fmt::format("{}:{}", options.split, places[i]),
             batch.labels[b].item<int64_t>(), guess, shown.cells, b);
  }
  return row;
}

GalleryRow picture_row(const ShownRun& run, const std::vector<int64_t>& places,
                       const std::string& label) {
  const Batch batch = run.batch(places);
  GalleryRow row{label, {}};
  for (size_t i = 0; i < places.size(); ++i)
    row.cells.push_back({run.picture(batch.images[static_cast<int64_t>(i)]), ""});
  return row;
}

}  // namespace

Figure saliency_figure(const FigureOptions& options) {
  const std::string title = "Saliency maps";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  const std::vector<int64_t> places = shown_images(options, runs[0], 10);
  FigureTable table = map_table();
  Gallery gallery;
  gallery.title = title;
  gallery.subtitle =
      fmt::format("{}; below each map the class it speaks for", runs[0].run.recipe.dataset.name);
  for (const int64_t place : places)
    gallery.columns.push_back(runs[0].class_name(runs[0].part.labels[place].item<int64_t>()));
  gallery.rows.push_back(picture_row(runs[0], places, "image"));
  for (const ShownRun& run : runs) gallery.rows.push_back(overlay_row(options, run, places, table));
  add_scale(gallery, options);
  return {title, draw_gallery(gallery), std::move(table)};
}

Figure saliency_steps_figure(const FigureOptions& options) {
  const ShownRun run = load_one_run(options, "saliency-steps");
  const std::vector<int64_t> places = shown_images(options, run, 5);
  const Batch batch = run.batch(places);
  const Forward forward = run.forward(batch);
  const Saliency result = saliency(
      forward.routings, saliency_layer(forward.routings, run.run.model->name(), options.layer),
      predicted_classes(forward), run.run.model->input(), options.placement);
  const Tensor predicted = predicted_classes(forward);
  FigureTable table = map_table();
  Gallery gallery;
  gallery.title = "From capsules to a saliency map";
  gallery.subtitle = fmt::format("{}, children of layer {}", run.label, result.layer);
  gallery.columns = {"image", "activations \u2016u\u2016", "couplings c", "saliency E", "overlay"};
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t b = static_cast<int64_t>(i);
    const int64_t guess = predicted[b].item<int64_t>();
    const Picture picture = run.picture(batch.images[b]);
    gallery.rows.push_back({run.class_name(guess),
                            {{picture},
                             {heat_picture(result.activation[b])},
                             {heat_picture(result.coupling[b])},
                             {heat_picture(result.map[b])},
                             {overlay(picture, result.map[b])}}});
    add_maps(table, run, fmt::format("{}:{}", options.split, places[i]),
             batch.labels[b].item<int64_t>(), guess, result.cells, b);
  }
  gallery.cell = 110;
  gallery.colour_scale = true;
  gallery.scale_label = "of each map";
  return {gallery.title, draw_gallery(gallery), std::move(table)};
}

Figure saliency_views_figure(const FigureOptions& options) {
  constexpr size_t kViews = 9;
  const std::string title = "Saliency maps of one object per category";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  check_same_classes(runs);
  const Dataset& part = runs[0].part;
  for (const char* name : {"instance", "elevation", "azimuth", "lighting"})
    check(part.attributes.count(name) != 0,
          "{}: its images have no {}; this figure is for smallNORB",
          runs[0].run.recipe.dataset.name, name);
  const bool by_elevation = runs[0].run.recipe.dataset.protocol == "elevation";
  const std::string turning = by_elevation ? "elevation" : "azimuth";
  const std::string fixed = by_elevation ? "azimuth" : "elevation";

  FigureTable table = map_table();
  Gallery gallery;
  gallery.title = title;
  gallery.subtitle = fmt::format("{} {}, one {} a column", runs[0].run.recipe.dataset.name,
                                 options.split, turning);
  for (int64_t j = 0; j < runs[0].classes(); ++j) {
    // The first object of the category, in all views that differ only in the turning attribute.
    const Tensor of_class = part.labels.eq(j).nonzero();
    if (of_class.size(0) == 0) continue;
    const int64_t first = of_class[0][0].item<int64_t>();
    Tensor same = part.labels.eq(j);
    for (const std::string& name : {std::string("instance"), std::string("lighting"), fixed}) {
      const Tensor& values = part.attributes.at(name);
      same = same.logical_and(values.eq(values[first]));
    }
    std::map<int64_t, int64_t> by_view;  // sorted by the attribute
    const Tensor places = same.nonzero().flatten();
    for (int64_t i = 0; i < places.size(0); ++i)
      by_view.emplace(part.attributes.at(turning)[places[i]].item<int64_t>(),
                      places[i].item<int64_t>());
    std::vector<int64_t> views;
    for (const auto& [view, place] : by_view)
      if (views.size() < kViews) views.push_back(place);
    gallery.rows.push_back(picture_row(runs[0], views, runs[0].class_name(j)));
    for (const ShownRun& run : runs)
      gallery.rows.push_back(overlay_row(options, run, views, table));
  }
  gallery.cell = 72;
  add_scale(gallery, options);
  return {title, draw_gallery(gallery), std::move(table)};
}

Figure object_share_figure(const FigureOptions& options) {
  const std::string title = "Share of saliency on the object";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  check_same_classes(runs);
  const int64_t classes = runs[0].classes();
  check(
      !options.masks.empty() || !runs[0].run.recipe.dataset.folder.empty(),
      "{} was trained on {}: this figure is for images that `remcaps paste` made, or give --masks",
      runs[0].label, runs[0].run.recipe.dataset.name);
  const Tensor masks =
      load_masks(options.masks.empty() ? masks_file(runs[0].run.recipe.dataset.folder)
                                       : std::filesystem::path(options.masks),
                 options.split)
          .slice(0, 0, runs[0].part.size());
  check(masks.size(0) == runs[0].part.size(), "{} masks for {} images", masks.size(0),
        runs[0].part.size());

  // A map seldom comes near zero (the background's capsules are active too): the share of what lies
  // above its lowest value is given beside that of the whole.
  FigureTable table{{"run", "class", "images", "share_on_object", "share_above_lowest",
                     "object_area", "accuracy"},
                    {}};
  Chart chart;
  chart.title = "Mean over the images of each class; grey: what a uniform map would give";
  chart.y = {.label = "share of saliency on the object", .low = 0.0, .high = 1.0};
  chart.width = 760;
  for (int64_t j = 0; j < classes; ++j) chart.categories.push_back(runs[0].class_name(j));
  chart.categories.push_back("all");
  const Tensor area = masks.ne(0).to(torch::kDouble).mean({1, 2});
  const auto per_class = [&](const Tensor& values, const Tensor& labels) {
    std::vector<double> means;
    for (int64_t j = 0; j < classes; ++j)
      means.push_back(values.masked_select(labels.eq(j)).mean().item<double>());
    means.push_back(values.mean().item<double>());
    return means;
  };
  const std::vector<double> areas = per_class(area, runs[0].part.labels);
  for (const ShownRun& run : runs) {
    Tensor share = torch::zeros({run.part.size()}, torch::kDouble);
    Tensor raised = torch::zeros_like(share), correct = torch::zeros_like(share);
    const auto on_batch = [&](const Batch& batch, const Forward& forward) {
      const Tensor places = batch.indices.cpu();
      const Tensor map = map_of(options, run, forward).map.clamp_min(0);
      const Tensor shown = masks.index_select(0, places);
      share.index_copy_(0, places, share_on_object(map, shown).to(torch::kCPU, torch::kDouble));
      raised.index_copy_(0, places,
                         share_on_object(map - map.amin({1, 2}, /*keepdim=*/true), shown)
                             .to(torch::kCPU, torch::kDouble));
      correct.index_copy_(
          0, places, predicted_classes(forward).eq(batch.labels).to(torch::kCPU, torch::kDouble));
    };
    run.pass("saliency of " + run.label, on_batch,
             /*contributions=*/options.tree.of == TreeOf::kContributions);
    const std::vector<double> shares = per_class(share, run.part.labels);
    const std::vector<double> above = per_class(raised, run.part.labels);
    const std::vector<double> accuracies = per_class(correct, run.part.labels);
    for (size_t j = 0; j < shares.size(); ++j)
      table.add(run.label, chart.categories[j],
                j < static_cast<size_t>(classes)
                    ? run.part.labels.eq(static_cast<int64_t>(j)).sum().item<int64_t>()
                    : run.part.size(),
                shares[j], above[j], areas[j], accuracies[j]);
    chart.bars.push_back({fmt::format("{} ({:.1f} %)", run.label, 100 * shares.back()), shares});
  }
  chart.bars.push_back({"area of the object", areas, "#9aa3ad"});
  return {title, arrange({draw_chart(chart)}, 1, title, runs[0].data_line()), std::move(table)};
}

}  // namespace remcaps
