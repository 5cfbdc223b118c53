// Perturbed reconstructions, and images grouped by their parse tree.
#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/explain/perturb.h"
#include "remcaps/explain/statistics.h"
#include "remcaps/report/figure_gallery.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

Figure perturbations_figure(const FigureOptions& options) {
  constexpr int64_t kSteps = 11;
  const ShownRun run = load_one_run(options, "perturbations");
  const std::vector<int64_t> places = shown_images(options, run, 1);
  const Batch batch = run.batch(places);
  const Forward forward = run.forward(batch);
  const int64_t predicted = predicted_classes(forward)[0].item<int64_t>();
  const std::vector<double> offsets = perturbation_offsets(options.range, kSteps);
  const Tensor pose = forward.poses[0][predicted];
  const Tensor images = perturb(*run.run.model, pose, predicted, offsets);  // [D, S, C, H, W]

  Gallery gallery;
  gallery.title = "Reconstructions of a perturbed pose";
  gallery.subtitle = fmt::format("{}, image {}:{}, class {}", run.label, options.split, places[0],
                                 run.class_name(predicted));
  FigureTable table{{"dimension", "pose", "offset", "mean_pixel_change"}, {}};
  gallery.columns.push_back("image");
  for (const double offset : offsets)
    gallery.columns.push_back(offset == 0 ? "0" : fmt::format("{:+.3g}", offset));
  for (int64_t d = 0; d < images.size(0); ++d) {
    GalleryRow row{fmt::format("dim {}: {:.2f}", d, pose[d].item<double>()), {}};
    row.cells.push_back({d == 0 ? run.picture(batch.images[0]) : Picture(), ""});
    const Picture unmoved = run.picture(images[d][kSteps / 2]);
    for (int64_t s = 0; s < kSteps; ++s) {
      const Picture picture = run.picture(images[d][s]);
      row.cells.push_back({picture, ""});
      table.add(
          d, pose[d].item<double>(), offsets[static_cast<size_t>(s)],
          (picture.to(torch::kDouble) - unmoved.to(torch::kDouble)).abs().mean().item<double>() /
              255);
    }
    gallery.rows.push_back(std::move(row));
  }
  gallery.cell = 56;
  return {gallery.title, draw_gallery(gallery), std::move(table)};
}

Figure dictionary_figure(const FigureOptions& options) {
  constexpr size_t kTrees = 8;
  constexpr int64_t kClasses = 20;
  const ShownRun run = load_one_run(options, "dictionary");
  TreeGroups groups(run.class_quantizer(), run.classes());
  run.pass("parse trees of " + run.label,
           [&](const Batch& batch, const Forward& forward) { groups.add(forward, batch.indices); });
  Gallery gallery;
  gallery.title = "Images that share a parse tree";
  gallery.subtitle = fmt::format("{}, {} {} images: each class's most frequent trees", run.label,
                                 with_commas(run.part.size()), options.split);
  FigureTable table{{"class", "rank", "images", "first_image"}, {}};
  for (int64_t j = 0; j < std::min(run.classes(), kClasses); ++j) {
    GalleryRow row{fmt::format("{} ({} tree{})", run.class_name(j), groups.trees(j),
                               groups.trees(j) == 1 ? "" : "s"),
                   {}};
    int64_t rank = 0;
    for (const std::vector<int64_t>& images : groups.largest(j, kTrees)) {
      // The mean of many images is a blur whatever they are: some are enough.
      std::vector<int64_t> some(
          images.begin(),
          images.begin() + static_cast<int64_t>(std::min<size_t>(images.size(), 256)));
      row.cells.push_back(
          {run.picture(run.batch(some).images.mean(0)), fmt::format("{}\u00d7", images.size())});
      table.add(run.class_name(j), ++rank, static_cast<int64_t>(images.size()), images.front());
    }
    if (!row.cells.empty()) gallery.rows.push_back(std::move(row));
  }
  gallery.cell = 64;
  return {gallery.title, draw_gallery(gallery), std::move(table)};
}

}  // namespace remcaps
