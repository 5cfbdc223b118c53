#include "remcaps/explain/explain.h"

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/explain/perturb.h"
#include "remcaps/explain/picture.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/explain/tree_drawing.h"
#include "remcaps/tensors/safetensors.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kShownSide = 224;  // pixels a small image is enlarged to
constexpr int64_t kPerturbationSteps = 11;

bool has_saliency(const Forward& forward) {
  return std::any_of(forward.routings.begin(), forward.routings.end(), has_place);
}

bool has_drawable_tree(const Forward& forward) {
  if (forward.routings.empty() || forward.routings.back().convolutional()) return false;
  for (size_t l = first_tree_layer(forward.routings); l < forward.routings.size(); ++l)
    if (forward.routings[l].child_activations.size(1) > kMostNodesPerLayer) return false;
  return forward.activations.size(1) <= kMostNodesPerLayer;
}

fs::path with_suffix(const fs::path& stem, const std::string& suffix) {
  return stem.string() + suffix;
}

// Writes one image's explanation, file by file.
class Writer {
 public:
  Writer(const LoadedRun& run, const torch::Tensor& image, const Forward& forward, fs::path stem)
      : run_(run), image_(image), forward_(forward), stem_(std::move(stem)) {
    result_.predicted = predicted_classes(forward)[0].item<int64_t>();
    result_.activation = forward.activations[0][result_.predicted].item<double>();
  }

  void saliency(const std::string& layer) {
    const Tensor classes = predicted_classes(forward_);
    const size_t at = saliency_layer(forward_.routings, run_.model->name(), layer);
    const Saliency maps = remcaps::saliency(forward_.routings, at, classes, run_.model->input());
    const Picture picture = picture_of(image_[0]);
    const int64_t factor = enlargement(picture, kShownSide);
    const Picture panels =
        mosaic({{enlarge(picture, factor), enlarge(heat_picture(maps.map[0]), factor),
                 enlarge(overlay(picture, maps.map[0]), factor)}},
               8);
    write_png(add("-overlay.png"), panels);
    TensorMap raw = {{"map", maps.map[0].contiguous()}};
    for (size_t g = 0; g < maps.cells.size(); ++g)
      raw[fmt::format("cells.{}", g)] = maps.cells[g][0].contiguous();
    save_safetensors(add("-saliency.safetensors"), raw,
                     {{"layer", maps.layer},
                      {"predicted_class", class_name()},
                      {"network", run_.model->name()}});
  }

  void tree(const TreeOptions& options) {
    const ParseTree tree = parse_tree(capsule_layers(forward_, 0), {result_.predicted}, options);
    const Svg drawing = draw_tree(
        tree, {.title = fmt::format("{} ({:.3f})", class_name(), result_.activation),
               .subtitle = fmt::format("{}: {} capsules, {} connections", run_.recipe.name,
                                       tree.nodes_in_tree(), tree.edges.size()),
               .class_names = run_.class_names,
               .picture = png_data_uri(picture_of(image_[0]))});
    write_atomically(add("-tree.svg"), drawing.str("Parse tree of " + stem_.filename().string()));
  }

  void perturbations(double range) {
    const Tensor images =
        perturb(*run_.model, forward_.poses[0][result_.predicted], result_.predicted,
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

  Explanation take() { return std::move(result_); }

 private:
  Picture picture_of(const Tensor& normalised) const {
    return to_picture(normalised, run_.context.mean, run_.context.std);
  }
  std::string class_name() const {
    const size_t place = static_cast<size_t>(result_.predicted);
    return place < run_.class_names.size() ? run_.class_names[place]
                                           : std::to_string(result_.predicted);
  }
  const fs::path& add(const std::string& suffix) {
    result_.files.push_back(with_suffix(stem_, suffix));
    return result_.files.back();
  }

  const LoadedRun& run_;
  const torch::Tensor& image_;
  const Forward& forward_;
  fs::path stem_;
  Explanation result_;
};

}  // namespace

Explanation explain_image(const LoadedRun& run, const torch::Tensor& image,
                          const ExplainOptions& options, const fs::path& stem) {
  const torch::NoGradGuard no_grad;
  ForwardOptions how;
  how.trace = true;
  how.quantizers = run.recipe.quantize.quantizers(run.model->routing_layers().size());
  const Forward forward = run.model->forward(image, how);
  const bool everything = !options.saliency && !options.tree && !options.perturbations;
  if (stem.has_parent_path()) make_folder(stem.parent_path());
  Writer writer(run, image, forward, stem);
  // What was asked for by name is tried in any case: its error says what is missing.
  const bool saliency = everything && (has_saliency(forward) || !options.layer.empty());
  if (options.saliency || saliency) writer.saliency(options.layer);
  if (options.tree || (everything && has_drawable_tree(forward))) writer.tree(options.tree_options);
  if (options.perturbations || (everything && run.model->has_decoder()))
    writer.perturbations(options.range);
  return writer.take();
}

}  // namespace remcaps
