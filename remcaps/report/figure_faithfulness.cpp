// Whether maps show what an answer rests on: pixels and capsules taken away or put back in their
// order.
#include <algorithm>
#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/capsule/fc_caps.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/explain/faithfulness.h"
#include "remcaps/explain/pasted.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/shown_runs.h"
#include "remcaps/torch/random.h"

namespace remcaps {

namespace {

constexpr int64_t kCurveSteps = 10, kCapsuleSteps = 50;
constexpr int64_t kImagesAtOnce = 128;
struct Order {
  const char* name;
  size_t colour;  // of the palette; the legend is for all charts
};
constexpr Order kOrders[] = {{"contributions", 0},
                             {"couplings x activations", 1},
                             {"the paper's saliency (stretched)", 2},
                             {"Grad-CAM", 3},
                             {"random", 4}};
constexpr Order kCapsuleOrders[] = {
    {"contributions", 0}, {"couplings x activations", 1}, {"random", 4}};
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

// The class layer, if its children are the capsules of layer `at`. Null: their votes cannot be
// computed again without the other layers.
FcCapsImpl* class_layer(const CapsNet& model, size_t at) {
  const std::vector<RoutingLayer> layers = model.routing_layers();
  if (at + 1 != layers.size()) return nullptr;
  const auto modules = model.named_modules("", /*include_self=*/false);
  const auto* found = modules.find(layers[at].name);
  return found == nullptr ? nullptr : (*found)->as<FcCapsImpl>();
}

// What is measured of a network.
struct Faithfulness {
  std::vector<Measured> pixels{std::size(kOrders)}, capsules;
  Measured even;
};

// Takes away the children of the class layer, and puts them back: the poses of the others are zero.
void measure_capsules(std::vector<Measured>& measured, FcCapsImpl& layer, const Forward& forward,
                      const Tensor& classes, const Quantizers& quantizers, const Tensor& indices) {
  const RoutingTrace& trace = forward.routings.back();
  const Tensor children = trace.children.detach();  // [B, I, D]
  RoutingRequest quantized;
  if (!quantizers.empty()) quantized.quantizer = quantizers.back();
  const int64_t capsules = children.size(1);
  const ImageShape as_image{1, capsules, 1};
  const Tensor coupled = couplings_to(trace.coupling.to(torch::kFloat), classes);
  const std::vector<Tensor> orders = {
      evidence_for(forward.routings, forward.routings.size() - 1, classes).children,
      coupled * trace.child_activations, noise(indices, as_image, /*draw=*/3).squeeze(2)};
  const Tensor tie = noise(indices, as_image, /*draw=*/2).squeeze(2);
  const auto lengths = [&](const Tensor& poses) {  // [B, D, I, 1]
    const Tensor some = poses.squeeze(3).transpose(1, 2).contiguous();
    return layer.forward(some, quantized)
        .poses.norm(2, -1)
        .gather(1, classes.view({-1, 1}))
        .squeeze(1);
  };
  const Tensor images = children.transpose(1, 2).unsqueeze(3);
  measured.resize(std::size(kCapsuleOrders));
  for (size_t order = 0; order < measured.size(); ++order) {
    const PixelCurves curves =
        pixel_curves(lengths, images, torch::zeros({1, 1, 1}),
                     pixel_order(orders[order].cpu(), tie).to(images.device()), kCapsuleSteps);
    measured[order].deletion.push_back(curves.deletion.cpu());
    measured[order].insertion.push_back(curves.insertion.cpu());
  }
}

Faithfulness measure(const ShownRun& run, const std::string& layer, const Tensor& masks) {
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
  Faithfulness measured;
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
    for (size_t order = 0; order < maps.size(); ++order) {
      Measured& of = measured.pixels[order];
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
      measured.even.share.push_back(share_on_object(
          place_on_image(ones, routings[at].grids, input, Placement::kReceptiveFields).cpu(),
          objects));
    }
    if (FcCapsImpl* of_classes = class_layer(model, at))
      measure_capsules(measured.capsules, *of_classes, forward, classes, run.quantizers,
                       batch.indices);
    progress.update(begin + classes.size(0));
  }
  progress.finish();
  model.train(training);
  return measured;
}

}  // namespace

namespace {

struct CurveCharts {
  Chart removed, kept;
};

// Two charts of a network, and their rows in the table.
template <size_t kCount>
CurveCharts charts_of(const ShownRun& run, const std::string& what,
                      const std::vector<Measured>& measured, const Order (&orders)[kCount],
                      FigureTable& table) {
  CurveCharts charts;
  charts.removed.title = fmt::format("{}: without these {}", run.label, what);
  charts.kept.title = fmt::format("{}: with these {} only", run.label, what);
  for (Chart* chart : {&charts.removed, &charts.kept}) {
    chart->x = {.label = "part of the " + what, .low = 0.0, .high = 1.0};
    chart->y = {.label = "length of the class", .low = 0.0, .high = 1.0};
    chart->legend = false;
  }
  for (size_t order = 0; order < measured.size(); ++order) {
    const Measured& of = measured[order];
    const std::vector<double> deletion = Measured::mean_curve(of.deletion),
                              insertion = Measured::mean_curve(of.insertion);
    const auto [deleted, deleted_error] = Measured::area(of.deletion);
    const auto [inserted, inserted_error] = Measured::area(of.insertion);
    const double share = Measured::mean(of.share);
    std::vector<double> parts;
    for (size_t step = 0; step < deletion.size(); ++step) {
      parts.push_back(static_cast<double>(step) / static_cast<double>(deletion.size() - 1));
      table.add(run.label, what, orders[order].name, run.part.size(), share, deleted, deleted_error,
                inserted, inserted_error, parts[step], deletion[step], insertion[step]);
    }
    ChartLine line{.name = orders[order].name,
                   .x = parts,
                   .y = deletion,
                   .dashed = order + 1 == kCount,
                   .colour = palette(orders[order].colour)};
    charts.removed.lines.push_back(line);
    line.y = insertion;
    charts.kept.lines.push_back(line);
  }
  return charts;
}

}  // namespace

Figure faithfulness_figure(const FigureOptions& options) {
  const std::string title = "What an answer rests on: pixels and capsules in the order of a map";
  const std::vector<ShownRun> runs = load_shown_runs(options);
  FigureTable table{
      {"run", "of", "order", "images", "object_share", "deletion_area", "deletion_error",
       "insertion_area", "insertion_error", "part", "deletion", "insertion"},
      {}};
  std::vector<Svg> drawings;
  Chart legend;
  const auto draw = [&](const CurveCharts& charts) {
    drawings.push_back(draw_chart(charts.removed));
    drawings.push_back(draw_chart(charts.kept));
    for (const ChartLine& line : charts.removed.lines)
      if (std::none_of(legend.lines.begin(), legend.lines.end(),
                       [&](const ChartLine& each) { return each.name == line.name; }))
        legend.lines.push_back(line);
  };
  for (const ShownRun& run : runs) {
    Tensor masks;
    const std::string& folder = run.run.recipe.dataset.folder;
    if (!options.masks.empty())
      masks = load_masks(options.masks, options.split);
    else if (!folder.empty() && std::filesystem::is_regular_file(masks_file(folder)))
      masks = load_masks(masks_file(folder), options.split);
    const Faithfulness measured = measure(run, options.layer, masks);
    draw(charts_of(run, "pixels", measured.pixels, kOrders, table));
    if (!measured.capsules.empty())
      draw(charts_of(run, "capsules", measured.capsules, kCapsuleOrders, table));
    if (!measured.even.share.empty())
      table.add(run.label, "pixels", kEven, run.part.size(), Measured::mean(measured.even.share),
                "", "", "", "", "", "", "");
  }
  return {title, arrange(drawings, 2, title, runs[0].data_line(), &legend), std::move(table)};
}

}  // namespace remcaps
