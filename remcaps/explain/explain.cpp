#include "remcaps/explain/explain.h"

#include <fmt/ranges.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/explain/perturb.h"
#include "remcaps/explain/picture.h"
#include "remcaps/explain/tree_drawing.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kShownSide = 224;  // pixels a small image is enlarged to
constexpr int64_t kPerturbationSteps = 11;

// Why there is none; empty if there is one.
std::string why_no_saliency(const Forward& forward) {
  const auto& routings = forward.routings;
  return std::any_of(routings.begin(), routings.end(), has_place) ? ""
                                                                  : "its capsules lie on no grid";
}

std::string why_no_tree(const Forward& forward) {
  if (forward.routings.empty() || forward.routings.back().convolutional())
    return "its class capsules are not fully connected";
  const int64_t classes = forward.activations.size(1);
  if (classes <= kMostNodesPerLayer) return "";
  return fmt::format("{} classes (at most {} are drawn)", classes, kMostNodesPerLayer);
}

std::string why_no_perturbations(const CapsNet& model) {
  return model.has_decoder() ? "" : "trained without a decoder";
}

Answer answer_of(const Forward& forward) {
  const int64_t predicted = predicted_classes(forward)[0].item<int64_t>();
  return {predicted, forward.activations[0][predicted].item<double>()};
}

// "K = 11", "K = 11, 6": one for all routing layers, or one for each.
std::string levels_text(const QuantizeOptions& quantize) {
  const bool quantizes =
      std::any_of(quantize.levels.begin(), quantize.levels.end(), [](int64_t k) { return k > 0; });
  return quantizes ? fmt::format("K = {}", fmt::join(quantize.levels, ", ")) : "unquantized";
}

fs::path with_suffix(const fs::path& stem, const std::string& suffix) {
  return stem.string() + suffix;
}

// Writes one image's explanation, file by file.
class Writer {
 public:
  // plain: the answer without quantization, of which there is no picture.
  Writer(const LoadedRun& run, const torch::Tensor& image, const Forward& forward, Answer plain,
         fs::path stem)
      : run_(run), image_(image), forward_(forward), stem_(std::move(stem)) {
    result_.plain = plain;
    result_.quantized = answer_of(forward);
  }

  void evidence() {
    const size_t at = first_chained_layer(forward_.routings);
    const Evidence found = evidence_for(forward_.routings, at, predicted_classes(forward_));
    const EffectiveParts parts = effective_parts(found.children);
    result_.evidence = {forward_.routings[at].layer,
                        found.children.clamp_min(0).sum().item<double>(),
                        found.children.neg().clamp_min(0).sum().item<double>(),
                        found.bias.item<double>(),
                        found.children.ne(0).sum().item<int64_t>(),
                        parts.half.item<int64_t>(),
                        parts.spread.item<double>()};
  }

  void saliency(const ExplainOptions& options) {
    const Tensor classes = predicted_classes(forward_);
    const size_t at = saliency_layer(forward_.routings, run_.model->name(), options.layer);
    if (options.tree_options.of == TreeOf::kCouplings) {
      const Saliency maps =
          remcaps::saliency(forward_.routings, at, classes, run_.model->input(), options.placement);
      TensorMap raw = {{"map", maps.map[0].contiguous()}};
      for (size_t g = 0; g < maps.cells.size(); ++g)
        raw[fmt::format("cells.{}", g)] = maps.cells[g][0].contiguous();
      const auto both = [&](const Picture& picture) {
        return std::pair(heat_picture(maps.map[0]), overlay(picture, maps.map[0]));
      };
      return write_maps(maps.layer, raw, both);
    }
    const EvidenceMap maps =
        evidence_map(forward_.routings, at, classes, run_.model->input(), options.placement);
    const auto stored = [](const Tensor& values) {
      return values[0].to(torch::kFloat).contiguous();
    };
    TensorMap raw = {{"map", stored(maps.net())},
                     {"positive", stored(maps.positive)},
                     {"negative", stored(maps.negative)},
                     {"contributions", stored(maps.evidence.children)}};
    const auto& grids = forward_.routings[at].grids;
    for (size_t g = 0; g < grids.size(); ++g)
      raw[fmt::format("cells.{}", g)] = stored(on_grid(maps.evidence.children, grids[g]).sum(1));
    const auto both = [&](const Picture& picture) {
      return std::pair(balance_picture(maps.net()[0]), balance_overlay(picture, maps.net()[0]));
    };
    write_maps(maps.layer, raw, both);
  }

  void tree(const TreeOptions& options) {
    const ParseTree tree =
        parse_tree(capsule_layers(forward_, 0), {result_.quantized.predicted}, options);
    const Svg drawing = draw_tree(
        tree, {.title = tree_title(),
               .subtitle = fmt::format("{}, {}: {} capsules, {} {}", run_.recipe.name,
                                       levels_text(run_.recipe.quantize), tree.nodes_in_tree(),
                                       tree.edges.size(),
                                       options.of == TreeOf::kCouplings ? "connections"
                                       : options.threshold              ? "contributions"
                                                           : "contributions, half of the evidence"),
               .class_names = run_.class_names,
               .picture = png_data_uri(picture_of(image_[0]))});
    write_atomically(add("-tree.svg"), drawing.str("Parse tree of " + stem_.filename().string()));
  }

  void perturbations(double range) {
    const int64_t predicted = result_.quantized.predicted;
    const Tensor images = perturb(*run_.model, forward_.poses[0][predicted], predicted,
                                  perturbation_offsets(range, kPerturbationSteps));
    std::vector<std::vector<Picture>> rows;
    for (int64_t d = 0; d < images.size(0); ++d) {
      std::vector<Picture> row;
      for (int64_t s = 0; s < images.size(1); ++s) row.push_back(picture_of(images[d][s]));
      rows.push_back(std::move(row));
    }
    const Picture all = mosaic(rows);
    write_png(add("-perturbations.png"), enlarge(all, enlargement(all, 4 * kShownSide)));
  }

  void leave_out(std::string line) { result_.left_out.push_back(std::move(line)); }
  ExplanationFiles take() { return std::move(result_); }

 private:
  Picture picture_of(const Tensor& normalised) const {
    return to_picture(normalised, run_.context.mean, run_.context.std);
  }
  // Both answers if they differ: the tree is of the one with quantized couplings.
  std::string tree_title() const {
    const auto text = [&](const Answer& answer) {
      return fmt::format("{} ({:.3f})", run_.class_name(answer.predicted), answer.activation);
    };
    const std::string title = text(result_.quantized);
    if (result_.plain.predicted == result_.quantized.predicted) return title;
    return fmt::format("{}; unquantized {}", title, text(result_.plain));
  }
  // `both` makes the map's picture and the map over the image's picture.
  void write_maps(const std::string& layer, const TensorMap& raw,
                  const std::function<std::pair<Picture, Picture>(const Picture&)>& both) {
    const Picture picture = picture_of(image_[0]);
    const int64_t factor = enlargement(picture, kShownSide);
    const auto [map, over] = both(picture);
    write_png(add("-overlay.png"),
              mosaic({{enlarge(picture, factor), enlarge(map, factor), enlarge(over, factor)}}, 8));
    save_safetensors(add("-saliency.safetensors"), raw,
                     {{"layer", layer},
                      {"predicted_class", run_.class_name(result_.quantized.predicted)},
                      {"network", run_.model->name()}});
  }

  const fs::path& add(const std::string& suffix) {
    result_.files.push_back(with_suffix(stem_, suffix));
    return result_.files.back();
  }

  const LoadedRun& run_;
  const torch::Tensor& image_;
  const Forward& forward_;
  fs::path stem_;
  ExplanationFiles result_;
};

}  // namespace

ExplanationFiles explain_image(const LoadedRun& run, const torch::Tensor& image,
                               const ExplainOptions& options, const fs::path& stem) {
  const torch::NoGradGuard no_grad;
  run.model->require_routing();
  ForwardOptions how;
  how.trace = true;
  how.contributions = true;
  how.quantizers = run.recipe.quantize.quantizers(run.model->routing_layers().size());
  const auto [plain, forward] = run.model->forward_both(image, {}, how);
  Writer writer(run, image, forward, answer_of(plain), stem);
  const bool everything = !options.saliency && !options.tree && !options.perturbations;
  // An option that changes something asks for it, too.
  const auto shown = [&](bool by_name, bool option, const char* what, const std::string& why_not) {
    if (!by_name && !everything) return false;
    if (why_not.empty()) return true;
    const std::string line = fmt::format("no {}: {}", what, why_not);
    if (by_name || option) fail("{}: {}", run.model->name(), line);
    writer.leave_out(line);
    return false;
  };
  const bool saliency =
      shown(options.saliency, !options.layer.empty() || options.placement == Placement::kStretched,
            "saliency map", why_no_saliency(forward));
  const bool tree =
      shown(options.tree, options.tree_options.threshold || options.tree_options.weak_edges,
            "parse tree", why_no_tree(forward));
  const bool perturbations = shown(options.perturbations, options.range.has_value(),
                                   "perturbed reconstructions", why_no_perturbations(*run.model));
  if (stem.has_parent_path()) make_folder(stem.parent_path());
  writer.evidence();
  if (saliency) writer.saliency(options);
  if (tree) writer.tree(options.tree_options);
  if (perturbations) writer.perturbations(options.range.value_or(kPerturbationRange));
  return writer.take();
}

}  // namespace remcaps
