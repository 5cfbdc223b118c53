// Whether maps show what an answer rests on: pixels taken away or put back in their order.
#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/explain/faithfulness.h"
#include "remcaps/explain/pasted.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/shown_runs.h"
#include "remcaps/torch/random.h"

namespace remcaps {

namespace {

constexpr int64_t kCurveSteps = 10;
constexpr int64_t kImagesAtOnce = 128;
constexpr const char* kOrders[] = {"contributions", "couplings x activations",
                                   "the paper's saliency (stretched)", "Grad-CAM", "random"};
constexpr size_t kOrderCount = std::size(kOrders);
constexpr const char* kEven = "every capsule the same";

// What is measured of one order, batch by batch.
struct Measured {
  std::vector<Tensor> deletion, insertion;  // curves [b, steps + 1]
  std::vector<Tensor> share;                // on the object, [b]

  static double mean(const std::vector<Tensor>& values) {
    return values.empty() ? std::nan("")
                          : torch::cat(values).to(torch::kDouble).mean().item<double>();
  }
  static std::vector<double> mean_curve(const std::vector<Tensor>& curves) {
    const Tensor mean = torch::cat(curves).mean(0).contiguous();
    return {mean.data_ptr<double>(), mean.data_ptr<double>() + mean.numel()};
  }
  // The mean of the areas, and the standard error of that mean.
  static std::pair<double, double> area(const std::vector<Tensor>& curves) {
    const Tensor areas = area_under(torch::cat(curves));
    const double images = static_cast<double>(areas.size(0));
    return {areas.mean().item<double>(),
            images > 1 ? areas.std().item<double>() / std::sqrt(images) : std::nan("")};
  }
};

// Numbers in 0..1 for every pixel of some images: always the same for the same image of a split.
Tensor noise(const Tensor& indices, ImageShape input, uint32_t draw) {
  const int64_t pixels = input.height * input.width;
  const Tensor each = indices.cpu().view({-1, 1}) * pixels + torch::arange(pixels).view({1, -1});
  return random_uniform(/*seed=*/0, RandomStream::kExplain, /*epoch=*/0, each.flatten(), draw)
      .view({-1, input.height, input.width});
}

// Where the objects of a batch are, bool [b, H, W]: from masks, or all pixels that are not black in
// data sets that show objects on black. Undefined if it is not known.
Tensor objects_of(const ShownRun& run, const Tensor& masks, const Tensor& places) {
  if (masks.defined()) return masks.index_select(0, places).ne(0);
  const ImageShape input = run.run.model->input();
  const Tensor& pixels = run.part.images;
  const bool on_black = find_dataset(run.run.recipe.dataset.name).on_black;
  if (!on_black || pixels.size(2) != input.height || pixels.size(3) != input.width) return {};
  return object_masks(pixels.index_select(0, places));
}

std::vector<Measured> measure(const ShownRun& run, const std::string& layer, const Tensor& masks,
                              Measured& even) {
  const torch::NoGradGuard no_grad;
  CapsNet& model = *run.run.model;
  const ImageShape input = model.input();
  const bool training = model.is_training();
  model.eval();
  const ModelContext& context = run.run.context;
  const auto per_channel = [](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat).view({-1, 1, 1});
  };
  const Tensor black =
      (-per_channel(context.mean) / per_channel(context.std)).expand({input.channels, 1, 1});
  ForwardOptions traced, quantized;
  quantized.quantizers = run.quantizers;
  traced.quantizers = run.quantizers;
  traced.trace = true;
  traced.contributions = true;
  const BatchSource source = run.source();
  Progress progress("faithfulness of " + run.label, source.size());
  std::vector<Measured> measured(kOrderCount);
  for (int64_t begin = 0; begin < source.size(); begin += kImagesAtOnce) {
    const Batch batch =
        source.evaluation_batch(begin, std::min(kImagesAtOnce, source.size() - begin));
    const Forward forward = model.forward(batch.images, traced);
    const Tensor classes = predicted_classes(forward);
    const size_t at = saliency_layer(forward.routings, model.name(), layer);
    const auto& routings = forward.routings;
    const Tensor tie = noise(batch.indices, input, /*draw=*/0);
    const std::vector<Tensor> maps = {
        evidence_map(routings, at, classes, input).positive,
        saliency(routings, at, classes, input).map,
        saliency(routings, at, classes, input, Placement::kStretched).map,
        grad_cam(model, batch.images, quantized, at, classes), noise(batch.indices, input, 1)};
    const Tensor objects = objects_of(run, masks, batch.indices.cpu());
    const auto lengths = [&](const Tensor& images) {
      return model.forward(images, quantized)
          .activations.gather(1, classes.view({-1, 1}))
          .squeeze(1);
    };
    for (size_t order = 0; order < kOrderCount; ++order) {
      Measured& of = measured[order];
      const Tensor map = maps[order].cpu();
      const PixelCurves curves =
          pixel_curves(lengths, batch.images, black,
                       pixel_order(map, tie).to(batch.images.device()), kCurveSteps);
      of.deletion.push_back(curves.deletion.cpu());
      of.insertion.push_back(curves.insertion.cpu());
      if (objects.defined()) of.share.push_back(share_on_object(map, objects));
    }
    if (objects.defined()) {
      const Tensor ones = torch::ones_like(routings[at].child_activations);
      even.share.push_back(share_on_object(
          place_on_image(ones, routings[at].grids, input, Placement::kReceptiveFields).cpu(),
          objects));
    }
    progress.update(begin + classes.size(0));
  }
  progress.finish();
  model.train(training);
  return measured;
}

}  // namespace

Figure faithfulness_figure(const FigureOptions& options) {
  const std::string title = "What an answer rests on: pixels in the order of a map";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  FigureTable table{
      {"run", "order", "images", "object_share", "deletion_area", "deletion_error",
       "insertion_area", "insertion_error", "part_of_pixels", "deletion", "insertion"},
      {}};
  std::vector<double> parts;
  for (int64_t step = 0; step <= kCurveSteps; ++step)
    parts.push_back(static_cast<double>(step) / static_cast<double>(kCurveSteps));
  std::vector<Svg> drawings;
  Chart legend;
  for (const ShownRun& run : runs) {
    Tensor masks;
    const std::string& folder = run.run.recipe.dataset.folder;
    if (!options.masks.empty())
      masks = load_masks(options.masks, options.split);
    else if (!folder.empty() && std::filesystem::is_regular_file(masks_file(folder)))
      masks = load_masks(masks_file(folder), options.split);
    Measured even;
    const std::vector<Measured> measured = measure(run, options.layer, masks, even);
    Chart removed, kept;
    removed.title = run.label + ": without these pixels";
    kept.title = run.label + ": with these pixels only";
    for (Chart* chart : {&removed, &kept}) {
      chart->x = {.label = "part of the pixels", .low = 0.0, .high = 1.0};
      chart->y = {.label = "length of the class", .low = 0.0, .high = 1.0};
      chart->legend = false;
    }
    for (size_t order = 0; order < kOrderCount; ++order) {
      const Measured& of = measured[order];
      const std::vector<double> deletion = Measured::mean_curve(of.deletion),
                                insertion = Measured::mean_curve(of.insertion);
      const auto [deleted, deleted_error] = Measured::area(of.deletion);
      const auto [inserted, inserted_error] = Measured::area(of.insertion);
      const double share = Measured::mean(of.share);
      for (size_t step = 0; step < parts.size(); ++step)
        table.add(run.label, kOrders[order], run.part.size(), share, deleted, deleted_error,
                  inserted, inserted_error, parts[step], deletion[step], insertion[step]);
      const bool random = order + 1 == kOrderCount;
      removed.lines.push_back(
          {.name = kOrders[order], .x = parts, .y = deletion, .dashed = random});
      kept.lines.push_back({.name = kOrders[order], .x = parts, .y = insertion, .dashed = random});
    }
    if (!even.share.empty())
      table.add(run.label, kEven, run.part.size(), Measured::mean(even.share), "", "", "", "", "",
                "", "");
    legend = removed;
    drawings.push_back(draw_chart(removed));
    drawings.push_back(draw_chart(kept));
  }
  return {title, arrange(drawings, 2, title, runs[0].data_line(), &legend), std::move(table)};
}

}  // namespace remcaps
