// Trained networks: calling, explaining and measuring them.
#include <nlohmann/json.hpp>

#include "python/src/bindings.h"
#include "remcaps/base/json.h"
#include "remcaps/evaluation/split_trees.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/explain/picture.h"
#include "remcaps/explain/tree_drawing.h"
#include "remcaps/network.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/runs/load.h"
#include "remcaps/runs/zoo.h"

namespace remcaps::python {
namespace {

using Levels = std::optional<int64_t>;
using Quantizers = std::vector<std::optional<Quantizer>>;  // one for each routing layer

struct Answer {
  Tensor lengths, poses, predicted;       // [B, J], [B, J, D], int64 [B]
  std::map<std::string, Tensor> layers;   // couplings by routing layer
  std::optional<Tensor> couplings, tree;  // of the last layer: [B, I, J], uint8 [B, I]
};

struct PictureExplained {
  Answer answer;
  double evidence = 0, bias_contribution = 0;
  Tensor contributions;  // [I]
  int64_t parts_half = 0;
  double parts_spread = 0;
  std::optional<Tensor> contribution_map, saliency;  // [H, W]
  // layer, from, to, coupling, share of the evidence
  std::vector<std::tuple<int64_t, int64_t, int64_t, double, double>> edges;
  std::vector<std::string> layer_names;
  std::string svg;                // the drawn tree; empty if there is none
  std::vector<std::string> pngs;  // the image and, if there is saliency, the map and both
};

class Network {
 public:
  Network(const std::string& name, const std::string& device)
      : network_(remcaps::Network::load(name, device)), run_(network_.run()) {}

  const LoadedRun& run() const { return run_; }

  Tensor read(const std::string& picture, bool invert) const {
    return network_.read(picture, invert);
  }
  Tensor prepare(const Tensor& pixels) const { return network_.prepare(pixels); }

  // K = `levels` in all routing layers; without it, what the recipe says.
  Quantizers quantizers(const Levels& levels) const {
    QuantizeOptions quantize = run_.recipe.quantize;
    if (levels) {
      quantizer_of(*levels);  // checks K
      quantize.levels = {*levels};
    }
    return quantize.quantizers(run_.model->routing_layers().size());
  }

  Answer call(const Tensor& images, const Levels& levels, bool trace) const {
    return answer(images, levels ? quantizers(levels) : Quantizers(), trace || levels.has_value());
  }

  PictureExplained explain(const Tensor& image, const Levels& levels, bool of_contributions) const {
    PictureExplained explained;
    explained.answer = answer(image, quantizers(levels), /*trace=*/true);
    const Explanation found = network_.explain(image.to(torch::kFloat32), levels);
    const AugmentOptions& augment = run_.recipe.dataset.augment;
    const Picture picture = to_picture(image[0].cpu(), augment.mean, augment.std);
    explained.pngs.push_back(encoded(picture));
    explained.evidence = found.evidence;
    explained.bias_contribution = found.bias_contribution;
    explained.contributions = found.contributions;
    explained.parts_half = found.parts_half;
    explained.parts_spread = found.parts_spread;
    if (found.saliency.defined()) {
      explained.saliency = found.saliency;
      explained.contribution_map = found.contribution_map;
      explained.pngs.push_back(encoded(of_contributions ? balance_picture(found.contribution_map)
                                                        : heat_picture(found.saliency)));
      explained.pngs.push_back(encoded(of_contributions
                                           ? balance_overlay(picture, found.contribution_map)
                                           : overlay(picture, found.saliency)));
    }
    const std::optional<ParseTree>& tree = of_contributions ? found.contribution_tree : found.tree;
    if (tree) {
      explained.layer_names = tree->names;
      for (const TreeEdge& edge : tree->edges)
        explained.edges.emplace_back(edge.layer, edge.from, edge.to, edge.coupling, edge.share);
      explained.svg =
          draw_tree(*tree, {.title = found.answer.class_name, .class_names = run_.class_names})
              .str("parse tree");
    }
    return explained;
  }

  std::map<std::string, Tensor> state_dict() const {
    std::map<std::string, Tensor> state;
    for (const auto& parameter : run_.model->named_parameters())
      state[parameter.key()] = parameter.value().detach();
    for (const auto& buffer : run_.model->named_buffers()) state[buffer.key()] = buffer.value();
    return state;
  }

 private:
  static std::string encoded(const Picture& picture) {
    return png_data_uri(enlarge(picture, enlargement(picture, 140)));
  }

  Answer answer(const Tensor& images, const Quantizers& quantizers, bool trace) const {
    const torch::NoGradGuard no_grad;
    ForwardOptions options;
    options.trace = trace;
    options.quantizers = quantizers;
    const Forward passed = run_.model->forward(images.to(run_.device, torch::kFloat32), options);
    Answer answer{passed.activations, passed.poses, passed.activations.argmax(1), {}, {}, {}};
    for (const RoutingTrace& trace : passed.routings) answer.layers[trace.layer] = trace.coupling;
    if (passed.routings.empty()) return answer;
    const RoutingTrace& last = passed.routings.back();
    answer.couplings = last.coupling;
    if (!quantizers.empty() && quantizers.back() && !last.convolutional())
      answer.tree = level_indices(couplings_to(last.coupling, answer.predicted), *quantizers.back())
                        .to(torch::kUInt8);
    return answer;
  }

  remcaps::Network network_;
  const LoadedRun& run_;  // of network_
};

// The numbers of a split as JSON, with the keys of `remcaps eval --json` and `remcaps entropy
// --json`.
std::string measure(const Network& network, const std::string& split, const std::string& data,
                    const Levels& levels, int64_t batch, bool trees) {
  if (batch < 1) throw UsageError(fmt::format("batch: {}; expected 1 or more", batch));
  const LoadedRun& run = network.run();
  const DataSplits splits = run.load_data(data);
  const BatchSource source = run.source(splits, split);
  EvaluateOptions options = run.evaluation();
  options.batch = batch;
  options.on_progress = [](int64_t) { stop_if_interrupted(); };
  const Sparsity sparsity = measure_sparsity(*run.model);
  nlohmann::json json = {{"model", run.recipe.model},
                         {"dataset", run.recipe.dataset.name},
                         {"split", split},
                         {"classes", run.class_names},
                         {"parameters", sparsity.parameters},
                         {"parameters_nonzero", sparsity.nonzero},
                         {"sparsity", sparsity.published()}};
  Evaluation plain;
  if (trees) {
    SplitMeasurement measured =
        measure_split(*run.model, source, network.quantizers(levels), options, /*scores=*/true);
    check(measured.trees.has_value(),
          "the last routing layer of {} is not quantized (its K is 0): give levels",
          run.weights.string());
    plain = measured.plain;
    add_parse_trees(json, *measured.trees);
  } else {
    plain = evaluate(*run.model, source, options);
    json["confusion"] = rows_of(plain.confusion);
  }
  json["samples"] = plain.samples;
  json["accuracy"] = plain.accuracy;
  json["loss"] = plain.loss;
  return json_text(json);
}

}  // namespace

void bind_network(py::module_& module) {
  py::class_<Answer>(module, "Answer")
      .def_readonly("lengths", &Answer::lengths)
      .def_readonly("poses", &Answer::poses)
      .def_readonly("predicted", &Answer::predicted)
      .def_readonly("layers", &Answer::layers)
      .def_readonly("couplings", &Answer::couplings)
      .def_readonly("tree", &Answer::tree);
  py::class_<PictureExplained>(module, "Explanation")
      .def_readonly("answer", &PictureExplained::answer)
      .def_readonly("evidence", &PictureExplained::evidence)
      .def_readonly("bias_contribution", &PictureExplained::bias_contribution)
      .def_readonly("contributions", &PictureExplained::contributions)
      .def_readonly("parts_half", &PictureExplained::parts_half)
      .def_readonly("parts_spread", &PictureExplained::parts_spread)
      .def_readonly("contribution_map", &PictureExplained::contribution_map)
      .def_readonly("saliency", &PictureExplained::saliency)
      .def_readonly("edges", &PictureExplained::edges)
      .def_readonly("layer_names", &PictureExplained::layer_names)
      .def_readonly("svg", &PictureExplained::svg)
      .def_readonly("pngs", &PictureExplained::pngs);
  py::class_<Network>(module, "Network")
      .def(py::init<std::string, std::string>(), WithoutGil())
      .def("architecture", [](const Network& network) { return network.run().model->name(); })
      .def("class_names", [](const Network& network) { return network.run().class_names; })
      .def("input",
           [](const Network& network) {
             const ImageShape shape = network.run().model->input();
             return std::make_tuple(shape.channels, shape.height, shape.width);
           })
      .def("read", &Network::read, WithoutGil())
      .def("prepare", &Network::prepare, WithoutGil())
      .def("call", &Network::call, WithoutGil())
      .def("explain", &Network::explain, WithoutGil())
      .def("measure", &measure, WithoutGil())
      .def("state_dict", &Network::state_dict, WithoutGil());
  module.def("zoo_names", &zoo_names);
}

}  // namespace remcaps::python
