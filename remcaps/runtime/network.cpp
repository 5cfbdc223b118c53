#include "remcaps/runtime/network.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "remcaps/base/cpu.h"
#include "remcaps/base/error.h"
#include "remcaps/base/parallel.h"
#include "remcaps/base/thread_limit.h"
#include "remcaps/kernels/convolution/lane_convolution.h"
#include "remcaps/kernels/pictures/resize.h"
#include "remcaps/parse_tree/keys.h"
#include "remcaps/runtime/operation.h"
#include "remcaps/runtime/saliency.h"

namespace remcaps::runtime {
namespace {

// Images that pass through the network together: a batch of any size needs no more memory.
constexpr int64_t kImages = 64;
constexpr int64_t kMaxPictureSide = 32768;

std::string graph_text(const SafetensorsBytes& file) {
  const auto text = file.metadata().find(kGraphMetadata);
  check(text != file.metadata().end(),
        "{}: has no graph; `remcaps export` writes one for every built-in network", file.source());
  return text->second;
}

double channel_value(const std::vector<double>& values, int64_t channel) {
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
}

// A channel by its own mean and deviation. A blank one stays finite: its deviation counts as that
// of one pixel a level off.
void standardize_channel(std::span<float> channel) {
  const auto count = static_cast<double>(channel.size());
  double sum = 0, squares = 0;
  for (const float x : channel) sum += x;
  const double mean = sum / count;
  for (const float x : channel) squares += (x - mean) * (x - mean);
  const double deviation = std::max(std::sqrt(squares / count), 1.0 / (255.0 * std::sqrt(count)));
  for (float& x : channel) x = static_cast<float>((x - mean) / deviation);
}

}  // namespace

struct Network::Program {
  struct Step {
    std::unique_ptr<Operation> operation;
    std::vector<size_t> inputs;  ///< values: 0 is the input, n + 1 the output of step n
    std::vector<bool> taken;     ///< whether this step is the last to read them
  };
  NetworkGraph graph;
  int threads = 0;
  std::vector<LevelTable> tables;
  std::vector<RoutingLayer> layers;
  std::vector<RoutingInfo> routings;  ///< of the same layers
  std::optional<SaliencyLayer> saliency;
  std::vector<Step> steps;
  /// What routes the classes' capsules, those below, and so on.
  struct Link {
    size_t step = 0, layer = 0;
  };
  std::vector<Link> chain;
  int64_t contributing = 0;  ///< children of the last of them
  bool by_image = true;      ///< whether no operation wants batches
  size_t poses = 0;          ///< the value that holds the class capsules
  int64_t pose_dim = 0;

  explicit Program(const SafetensorsBytes& file);
  void read_levels(const std::string& source);
  void compile(const Weights& weights);
  void find_last_readers();
  void find_chain(const std::string& source);
  void add_evidence(const std::vector<Value>& values, Pass& pass, const Answer& answer) const;
  void run(int64_t batch, const float* images, Pass& pass, Answer& answer) const;
  void run_by_image(int64_t count, const float* images, Pass& pass, Answer& answer) const;
  const LevelTable* table_of(size_t layer) const {
    return graph.levels[layer] == 0 ? nullptr : &tables[layer];
  }
};

Network::Program::Program(const SafetensorsBytes& file)
    : graph(fused(NetworkGraph::parse(graph_text(file), file.source()))),
      threads(std::min(thread_count(), usable_cores())) {
  read_levels(file.source());
  compile(Weights(file));
  find_last_readers();
  find_chain(file.source());
}

void Network::Program::read_levels(const std::string& source) {
  const auto routed = std::count_if(graph.nodes.begin(), graph.nodes.end(), is_routing);
  check(static_cast<size_t>(routed) == graph.levels.size(),
        "{}: its graph has {} routing layers and levels for {}", source, routed,
        graph.levels.size());
  for (const int64_t levels : graph.levels) {
    check(levels == 0 || (levels >= 2 && levels <= 256), "{}: {} levels; expected 0, or 2 to 256",
          source, levels);
    const int64_t count = std::max<int64_t>(2, levels);  // a table that is not used where it is 0
    tables.emplace_back(Quantizer::of_form(graph.level_form, count));
  }
}

void Network::Program::compile(const Weights& weights) {
  std::map<std::string, size_t> values = {{kGraphInput, 0}};
  std::vector<ValueShape> shapes = {ValueShape::map(graph.channels, graph.height, graph.width)};
  std::vector<Sight> sights(1), routed;
  for (const GraphNode& node : graph.nodes) {
    Step step;
    std::vector<ValueShape> inputs;
    std::vector<Sight> seen;
    for (const std::string& input : node.inputs) {
      // A fused node has the name of the last one in it, which nobody reads before.
      const auto found = values.find(input);
      check(found != values.end(), "{}: {} of its graph reads {}, which is not there",
            weights.source(), node.name, input);
      step.inputs.push_back(found->second);
      inputs.push_back(shapes[found->second]);
      seen.push_back(sights[found->second]);
    }
    const size_t layer = layers.size();
    step.operation = make_operation(
        node, inputs, weights,
        {layer, is_routing(node) && graph.levels[layer] != 0 ? &tables[layer] : nullptr});
    by_image = by_image && !step.operation->wants_batches;
    if (const auto& routing = step.operation->routing) {
      layers.push_back({node.name, routing->positions, routing->children, routing->parents,
                        graph.levels[layer]});
      routings.push_back(*routing);
      routed.push_back(seen[0]);
    }
    sights.push_back(sight_of(*step.operation, seen, inputs));
    shapes.push_back(step.operation->shape);
    values[node.name] = shapes.size() - 1;
    steps.push_back(std::move(step));
  }
  poses = steps.back().inputs[0];
  pose_dim = shapes[poses].dim;
  check(!layers.empty() && layers.back().positions == 1 &&
            layers.back().parents == shapes.back().count &&
            shapes.back().count == static_cast<int64_t>(graph.classes.size()),
        "{}: its graph does not end in one capsule for each of its {} classes", weights.source(),
        graph.classes.size());
  saliency = find_saliency_layer(routings, routed);
}

void Network::Program::find_last_readers() {
  std::set<size_t> read_later = {poses};
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    step->taken.assign(step->inputs.size(), false);
    for (size_t i = 0; i < step->inputs.size(); ++i)
      step->taken[i] = !read_later.contains(step->inputs[i]) &&
                       std::count(step->inputs.begin(), step->inputs.end(), step->inputs[i]) == 1;
    read_later.insert(step->inputs.begin(), step->inputs.end());
  }
}

void Network::Program::find_chain(const std::string& source) {
  const auto routes = [](const Step& step) { return step.operation->routing.has_value(); };
  for (size_t value = poses; value > 0; value = steps[chain.back().step].inputs[0]) {
    const auto step = steps.begin() + static_cast<int64_t>(value) - 1;
    if (!routes(*step) || step->operation->shape.is_map()) break;
    chain.push_back({value - 1, static_cast<size_t>(std::count_if(steps.begin(), step, routes))});
  }
  check(!chain.empty(), "{}: its graph does not route to the capsules of the classes", source);
  const Step& lowest = steps[chain.back().step];
  const RoutingInfo& routing = *lowest.operation->routing;
  // The children of windows are those of the map that the windows slide over.
  contributing = routing.positions == 1 ? routing.children
                                        : steps[lowest.inputs[0] - 1].operation->shape.count;
}

// For the images of a batch, the last ones of the answer.
void Network::Program::add_evidence(const std::vector<Value>& values, Pass& pass,
                                    const Answer& answer) const {
  const int64_t batch = values.back().batch;
  const int64_t before = static_cast<int64_t>(answer.lengths.size()) / answer.classes - batch;
  for (int64_t image = 0; image < batch; ++image) {
    ParentEvidence from{{}, answer.predicted(before + image)};
    double bias = 0;
    for (const Link& link : chain) {
      const Step& step = steps[link.step];
      const std::vector<float>& all = pass.layers[link.layer];
      const float* couplings =
          all.data() + all.size() - (batch - image) * layers[link.layer].couplings();
      Evidence below =
          step.operation->evidence_below(values[step.inputs[0]], image, couplings, from);
      bias += below.bias;
      from = {std::move(below.capsules)};
    }
    pass.contributions.insert(pass.contributions.end(), from.parents.begin(), from.parents.end());
    pass.bias_evidence.push_back(static_cast<float>(bias));
    pass.evidence.push_back(
        static_cast<float>(std::accumulate(from.parents.begin(), from.parents.end(), bias)));
  }
}

void Network::Program::run(int64_t batch, const float* images, Pass& pass, Answer& answer) const {
  std::vector<Value> values(steps.size() + 1);
  values[0] = Value::make(ValueShape::map(graph.channels, graph.height, graph.width), batch);
  std::copy_n(images, batch * values[0].shape.floats(), values[0].data.get());
  for (size_t n = 0; n < steps.size(); ++n) {
    const Step& step = steps[n];
    std::vector<Operation::Input> inputs;
    for (size_t i = 0; i < step.inputs.size(); ++i)
      inputs.push_back({&values[step.inputs[i]], step.taken[i]});
    values[n + 1] = step.operation->run(inputs, pass);
    // Contributions are computed from the capsules of all layers, at the end.
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      Value& input = values[step.inputs[i]];
      if (step.taken[i] && (!pass.with_contributions || input.shape.is_map())) input = Value();
    }
  }
  const auto append = [batch](const Value& value, std::vector<float>& to) {
    to.insert(to.end(), value.data.get(), value.data.get() + batch * value.shape.floats());
  };
  append(values.back(), answer.lengths);
  append(values[poses], answer.poses);
  if (pass.with_contributions) add_evidence(values, pass, answer);
}

// Every thread takes some images through the whole network, whose maps stay in its cache: as many
// as have lanes of their own, if there are so many for every thread, otherwise one.
void Network::Program::run_by_image(int64_t count, const float* images, Pass& pass,
                                    Answer& answer) const {
  struct One {
    Pass pass;
    Answer answer;
  };
  const int64_t group = kernels::cpu::kLaneImages;
  const int64_t groups = count / group / thread_count() * thread_count();
  const int64_t pieces = groups + count - groups * group;
  std::vector<One> each(static_cast<size_t>(pieces), {pass, {.classes = answer.classes}});
  const int64_t floats = graph.channels * graph.height * graph.width;
  TaskQueue tasks(pieces);
  on_every_thread([&] {
    while (const auto task = tasks.next()) {
      const bool in_group = *task < groups;
      const int64_t first = in_group ? *task * group : groups * group + *task - groups;
      One& one = each[static_cast<size_t>(*task)];
      run(in_group ? group : 1, images + first * floats, one.pass, one.answer);
    }
  });
  const auto append = [](const std::vector<float>& from, std::vector<float>& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const One& one : each) {
    append(one.answer.lengths, answer.lengths);
    append(one.answer.poses, answer.poses);
    for (size_t layer = 0; layer < pass.layers.size(); ++layer) {
      append(one.pass.layers[layer], pass.layers[layer]);
      append(one.pass.child_lengths[layer], pass.child_lengths[layer]);
    }
    append(one.pass.contributions, pass.contributions);
    append(one.pass.evidence, pass.evidence);
    append(one.pass.bias_evidence, pass.bias_evidence);
  }
}

int64_t Answer::predicted(int64_t image) const {
  const auto begin = lengths.begin() + image * classes;
  return std::max_element(begin, begin + classes) - begin;
}

Network::Network(const SafetensorsBytes& file) : program_(std::make_unique<Program>(file)) {}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

const NetworkGraph& Network::graph() const {
  return program_->graph;
}

const std::vector<RoutingLayer>& Network::routing_layers() const {
  return program_->layers;
}

size_t Network::contribution_layer() const {
  return program_->chain.back().layer;
}

int64_t Network::contributing_capsules() const {
  return program_->contributing;
}

int64_t Network::classes() const {
  return static_cast<int64_t>(program_->graph.classes.size());
}

int64_t Network::pose_dim() const {
  return program_->pose_dim;
}

int64_t Network::input_floats() const {
  return graph().channels * graph().height * graph().width;
}

void Network::set_threads(int threads) {
  check(threads >= 1, "{} threads; expected at least 1", threads);
  program_->threads = threads;
}

std::vector<float> Network::prepare(const Picture& picture, bool invert) const {
  const NetworkGraph& graph = program_->graph;
  check(picture.pixels != nullptr && (picture.channels == 1 || picture.channels == 3) &&
            std::min(picture.height, picture.width) >= 1 &&
            std::max(picture.height, picture.width) <= kMaxPictureSide,
        "a picture of {}x{} pixels and {} channels; expected sides of 1 to {} and 1 or 3 channels",
        picture.height, picture.width, picture.channels, kMaxPictureSide);
  const int64_t planes = graph.channels == 3 ? 3 : 1;
  std::vector<uint8_t> bytes(static_cast<size_t>(planes * picture.height * picture.width));
  kernels::cpu::split_planes(picture.pixels, picture.height * picture.width, picture.channels,
                             planes, bytes.data());
  if (invert)
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(255 - byte);
  const int64_t height = graph.picture.resize > 0 ? graph.picture.resize : graph.height;
  const int64_t width = graph.picture.resize > 0 ? graph.picture.resize : graph.width;
  check(height >= graph.height && width >= graph.width,
        "the network crops {}x{} pixels out of {}x{}", graph.height, graph.width, height, width);
  std::vector<uint8_t> resized(static_cast<size_t>(planes * height * width));
  kernels::cpu::resize_picture(bytes.data(), planes, picture.height, picture.width, height, width,
                               resized.data(), graph.picture.antialias);
  const int64_t top = (height - graph.height) / 2, left = (width - graph.width) / 2;
  const int64_t places = graph.height * graph.width;
  std::vector<float> image(static_cast<size_t>(input_floats()));
  for (int64_t c = 0; c < graph.channels; ++c) {
    const uint8_t* plane = resized.data() + (planes == 1 ? 0 : c) * height * width;
    const std::span<float> channel(image.data() + c * places, static_cast<size_t>(places));
    for (int64_t i = 0; i < places; ++i)
      channel[static_cast<size_t>(i)] =
          plane[(top + i / graph.width) * width + left + i % graph.width] / 255.0F;
    if (graph.picture.standardize) {
      standardize_channel(channel);
      continue;
    }
    const auto mean = static_cast<float>(channel_value(graph.picture.mean, c));
    const auto deviation = static_cast<float>(channel_value(graph.picture.std, c));
    for (float& x : channel) x = (x - mean) / deviation;
  }
  return image;
}

Answer Network::run(std::span<const float> images, const RunOptions& options) const {
  const int64_t floats = input_floats(), count = static_cast<int64_t>(images.size()) / floats;
  check(static_cast<int64_t>(images.size()) == count * floats,
        "{} numbers; expected a multiple of {}: images of {}x{}x{}", images.size(), floats,
        graph().channels, graph().height, graph().width);
  const ThreadLimit limit(program_->threads);
  Answer answer{
      .images = count, .classes = classes(), .pose_dim = pose_dim(), .quantized = options.quantize};
  check(options.couplings || !options.contributions, "contributions need couplings");
  Pass pass{.couplings = options.couplings,
            .quantize = options.quantize,
            .with_contributions = options.contributions};
  if (options.couplings) {
    pass.layers.resize(program_->layers.size());
    pass.child_lengths.resize(program_->layers.size());
  }
  const bool by_image = program_->by_image && count >= thread_count();
  if (by_image) program_->run_by_image(count, images.data(), pass, answer);
  for (int64_t first = 0; first < count && !by_image; first += kImages)
    program_->run(std::min(kImages, count - first), images.data() + first * floats, pass, answer);
  answer.couplings = std::move(pass.layers);
  answer.child_lengths = std::move(pass.child_lengths);
  answer.contributions = std::move(pass.contributions);
  answer.evidence = std::move(pass.evidence);
  answer.bias_evidence = std::move(pass.bias_evidence);
  return answer;
}

std::vector<uint8_t> Network::level_indices(const Answer& answer, size_t layer) const {
  check(answer.quantized && layer < answer.couplings.size(),
        "levels of routing layer {}: the answer has none", layer);
  const LevelTable* table = program_->table_of(layer);
  check(table != nullptr, "{}: its couplings are not quantized", program_->layers[layer].name);
  std::vector<uint8_t> indices;
  indices.reserve(answer.couplings[layer].size());
  for (const float coupling : answer.couplings[layer])
    indices.push_back(static_cast<uint8_t>(table->quantizer().level(coupling)));
  return indices;
}

std::string Network::tree_key(const Answer& answer, int64_t image, size_t layer) const {
  check(answer.quantized && layer < answer.couplings.size() && image >= 0 && image < answer.images,
        "key of image {} at routing layer {}: the answer has none", image, layer);
  const LevelTable* table = program_->table_of(layer);
  const RoutingLayer& routed = program_->layers[layer];
  check(table != nullptr, "{}: its couplings are not quantized", routed.name);
  const float* from = answer.couplings[layer].data() + image * routed.couplings();
  std::vector<float> couplings(from, from + routed.couplings());
  if (layer + 1 == program_->layers.size()) {  // only those to the predicted class
    const int64_t parent = answer.predicted(image);
    for (int64_t i = 0; i < routed.children; ++i)
      couplings[static_cast<size_t>(i)] = from[i * routed.parents + parent];
    couplings.resize(static_cast<size_t>(routed.children));
  }
  const int64_t length =
      key_length(static_cast<int64_t>(couplings.size()), table->quantizer().levels());
  std::vector<uint8_t> key(static_cast<size_t>(length));
  encode_key(couplings, table->quantizer(), key);
  return {key.begin(), key.end()};
}

bool Network::has_saliency() const {
  return program_->saliency.has_value();
}

std::vector<float> Network::saliency(const Answer& answer, int64_t image,
                                     int64_t class_index) const {
  check(has_saliency(), "{}: its capsules have no place in the image, so there is no saliency map",
        graph().network);
  check(!answer.couplings.empty() && image >= 0 && image < answer.images && class_index >= 0 &&
            class_index < classes(),
        "saliency of image {} for class {}: the answer has none", image, class_index);
  const auto& [layer, places] = *program_->saliency;
  std::vector<std::span<const float>> couplings;
  for (size_t l = 0; l < program_->layers.size(); ++l) {
    const auto size = static_cast<size_t>(program_->layers[l].couplings());
    couplings.push_back(
        std::span(answer.couplings[l]).subspan(static_cast<size_t>(image) * size, size));
  }
  std::vector<float> values = coupling_to_class(program_->routings, couplings, layer, class_index);
  const float* length =
      answer.child_lengths[layer].data() + static_cast<size_t>(image) * values.size();
  // A prior can make an unquantized coupling negative; it counts as 0.
  for (float& value : values) value = std::max(value, 0.0F) * *length++;
  return place_on_image(values, places, program_->routings[layer].kept, graph().height,
                        graph().width);
}

}  // namespace remcaps::runtime
