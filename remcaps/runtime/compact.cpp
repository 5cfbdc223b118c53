#include "remcaps/runtime/compact.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

// What each channel of a map always is; nothing if that depends on the image.
using Constants = std::vector<std::optional<float>>;
using Flags = std::vector<bool>;

class Compaction {
 public:
  explicit Compaction(NetworkData& network) : graph_(network.graph), tensors_(network.tensors) {
    for (const GraphNode& node : graph_.nodes)
      for (const std::string& input : node.inputs) ++readers_[input];
  }

  void run() {
    for (const GraphNode& node : graph_.nodes) find_droppable(node);
    for (const GraphNode& node : graph_.nodes) follow_constants(node);
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) mark_needed(*node);
    for (GraphNode& node : graph_.nodes) shrink(node);
  }

 private:
  FloatTensor& tensor(const GraphNode& node, const std::string& role) {
    const auto found = tensors_.find(node.tensors.at(role));
    check(found != tensors_.end(), "compact network: no tensor {}", node.tensors.at(role));
    return found->second;
  }
  static bool is_plain(const GraphNode& node) {
    return node.op == "convolution" && node.numbers.at("groups") == 1;
  }
  static int64_t filters_of(const FloatTensor& weight) { return weight.shape[0]; }
  // The weights of a filter for one channel.
  static std::span<float> window(FloatTensor& weight, int64_t filter, int64_t channel) {
    const auto taps = static_cast<size_t>(weight.shape[2] * weight.shape[3]);
    return std::span(weight.values)
        .subspan(static_cast<size_t>(filter * weight.shape[1] + channel) * taps, taps);
  }
  static bool is_zero(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
  }

  // Channels of a value can go if all that makes it can do without them.
  void find_droppable(const GraphNode& node) {
    const bool passes_on = (node.op == "relu" || node.op == "batch_norm") &&
                           droppable_.contains(node.inputs[0]) && readers_[node.inputs[0]] == 1;
    if (is_plain(node) || passes_on) droppable_.insert(node.name);
  }

  void follow_constants(const GraphNode& node) {
    if (is_plain(node)) {
      const auto in = constants_.find(node.inputs[0]);
      if (in != constants_.end()) fold_constants(node, in->second);
      FloatTensor& weight = tensor(node, "weight");
      Constants out(static_cast<size_t>(filters_of(weight)));
      for (int64_t f = 0; f < filters_of(weight); ++f) {
        bool dead = true;
        for (int64_t c = 0; c < weight.shape[1]; ++c) dead = dead && is_zero(window(weight, f, c));
        if (dead)
          out[static_cast<size_t>(f)] = node.tensors.contains("bias")
                                            ? tensor(node, "bias").values[static_cast<size_t>(f)]
                                            : 0.0F;
      }
      constants_[node.name] = std::move(out);
    } else if (node.op == "relu" || node.op == "batch_norm") {
      const auto in = constants_.find(node.inputs[0]);
      if (in == constants_.end()) return;
      Constants out = in->second;
      for (size_t c = 0; c < out.size(); ++c)
        if (out[c]) out[c] = applied(node, c, *out[c]);
      constants_[node.name] = std::move(out);
    }
  }

  float applied(const GraphNode& node, size_t channel, float x) {
    if (node.op == "relu") return x > 0 ? x : x * static_cast<float>(node.numbers.at("slope"));
    const auto at = [&](const char* role) { return tensor(node, role).values[channel]; };
    const auto epsilon = static_cast<float>(node.numbers.at("epsilon"));
    return (x - at("mean")) * (at("weight") / std::sqrt(at("variance") + epsilon)) + at("bias");
  }

  // Moves the part that constant channels have in a convolution into its bias.
  void fold_constants(const GraphNode& node, const Constants& in) {
    FloatTensor& weight = tensor(node, "weight");
    const bool padded = node.numbers.at("padding_y") != 0 || node.numbers.at("padding_x") != 0;
    for (size_t c = 0; c < in.size(); ++c) {
      if (!in[c]) continue;
      if (*in[c] != 0 && (padded || !node.tensors.contains("bias"))) continue;
      for (int64_t f = 0; f < filters_of(weight); ++f) {
        const std::span<float> taps = window(weight, f, static_cast<int64_t>(c));
        double sum = 0;
        for (float& tap : taps) sum += std::exchange(tap, 0.0F);
        if (*in[c] != 0)
          tensor(node, "bias").values[static_cast<size_t>(f)] += static_cast<float>(sum * *in[c]);
      }
    }
  }

  // From the last node to the first: which channels of its inputs a node needs. A value that is not
  // in needed_ is needed as a whole.
  void mark_needed(const GraphNode& node) {
    if (node.op == "dynamic_routing" && node.numbers.at("shared_over") == 1) {
      mark_types(node);
    } else if (readers_[node.inputs[0]] > 1) {
      return;
    } else if (is_plain(node)) {
      FloatTensor& weight = tensor(node, "weight");
      Flags needed(static_cast<size_t>(weight.shape[1]));
      for (int64_t f = 0; f < filters_of(weight); ++f) {
        if (!is_needed(node.name, f)) continue;
        for (int64_t c = 0; c < weight.shape[1]; ++c)
          if (!is_zero(window(weight, f, c))) needed[static_cast<size_t>(c)] = true;
      }
      need(node.inputs[0], std::move(needed));
    } else if ((node.op == "relu" || node.op == "batch_norm") && needed_.contains(node.name)) {
      need(node.inputs[0], needed_.at(node.name));
    }
  }

  // Which types of the capsules below a routing layer can vote.
  void mark_types(const GraphNode& routing) {
    const auto found =
        std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const GraphNode& node) {
          return node.op == "capsules" && node.name == routing.inputs[0];
        });
    if (found == graph_.nodes.end() || readers_[found->name] > 1 ||
        readers_[found->inputs[0]] > 1 || !is_convolution(found->inputs[0]))
      return;
    const auto types = static_cast<int64_t>(found->numbers.at("types"));
    const auto dim = static_cast<int64_t>(found->numbers.at("dim"));
    const FloatTensor& weight = tensor(routing, "weight");
    const int64_t children = weight.shape[0];
    const auto matrix = static_cast<size_t>(weight.shape[1] * weight.shape[2] * weight.shape[3]);
    const int64_t places = children / types;
    const bool type_first = found->words.at("order") == "type-first";
    const auto type_of = [&](int64_t i) { return type_first ? i / places : i % types; };
    Flags votes(static_cast<size_t>(types));
    for (int64_t i = 0; i < children; ++i)
      if (!is_zero(std::span(weight.values).subspan(static_cast<size_t>(i) * matrix, matrix)))
        votes[static_cast<size_t>(type_of(i))] = true;
    const auto constants = constants_.find(found->inputs[0]);
    Flags channels(static_cast<size_t>(types * dim));
    for (int64_t type = 0; type < types; ++type) {
      bool zero = constants != constants_.end();
      for (int64_t c = type * dim; zero && c < (type + 1) * dim; ++c)
        zero = constants->second[static_cast<size_t>(c)] == std::optional(0.0F);
      if (zero) votes[static_cast<size_t>(type)] = false;
    }
    if (std::count(votes.begin(), votes.end(), true) == 0) votes[0] = true;
    for (int64_t c = 0; c < types * dim; ++c)
      channels[static_cast<size_t>(c)] = votes[static_cast<size_t>(c / dim)];
    Flags kept(static_cast<size_t>(children));
    for (int64_t i = 0; i < children; ++i)
      kept[static_cast<size_t>(i)] = votes[static_cast<size_t>(type_of(i))];
    need(found->inputs[0], std::move(channels));
    needed_[found->name] = std::move(kept);
  }

  bool is_convolution(const std::string& value) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(),
                       [&](const GraphNode& node) { return node.name == value && is_plain(node); });
  }
  void need(const std::string& value, Flags needed) {
    if (!droppable_.contains(value)) return;
    if (std::count(needed.begin(), needed.end(), true) == 0) needed[0] = true;
    needed_[value] = std::move(needed);
  }
  bool is_needed(const std::string& value, int64_t channel) const {
    const auto found = needed_.find(value);
    return found == needed_.end() || found->second[static_cast<size_t>(channel)];
  }

  void shrink(GraphNode& node) {
    const auto in = needed_.find(node.inputs[0]), out = needed_.find(node.name);
    if (is_plain(node)) {
      if (out != needed_.end()) {
        keep(tensor(node, "weight"), 0, out->second);
        if (node.tensors.contains("bias")) keep(tensor(node, "bias"), 0, out->second);
      }
      if (in != needed_.end()) keep(tensor(node, "weight"), 1, in->second);
    } else if (node.op == "batch_norm" && in != needed_.end()) {
      for (const auto& [role, name] : node.tensors) keep(tensor(node, role), 0, in->second);
    } else if (node.op == "capsules" && in != needed_.end()) {
      node.numbers["types"] = static_cast<double>(
          std::count(in->second.begin(), in->second.end(), true) / node.numbers.at("dim"));
    } else if (node.op == "dynamic_routing" && in != needed_.end()) {
      const Flags& kept = in->second;
      if (std::count(kept.begin(), kept.end(), false) == 0) return;
      keep(tensor(node, "weight"), 0, kept);
      if (node.tensors.contains("coupling")) keep(tensor(node, "coupling"), 0, kept);
      node.numbers["children"] = static_cast<double>(kept.size());
      node.words["kept"] = ranges(kept);
    }
  }

  // Drops the slices of a dimension that are not kept.
  static void keep(FloatTensor& tensor, size_t dimension, const Flags& kept) {
    size_t inner = 1;
    for (size_t d = dimension + 1; d < tensor.shape.size(); ++d)
      inner *= static_cast<size_t>(tensor.shape[d]);
    std::vector<float> values;
    for (size_t begin = 0; begin < tensor.values.size(); begin += inner)
      if (kept[begin / inner % kept.size()])
        values.insert(values.end(), tensor.values.begin() + static_cast<int64_t>(begin),
                      tensor.values.begin() + static_cast<int64_t>(begin + inner));
    tensor.values = std::move(values);
    tensor.shape[dimension] = std::count(kept.begin(), kept.end(), true);
  }

  static std::string ranges(const Flags& kept) {
    std::string text;
    for (size_t begin = 0; begin < kept.size();) {
      size_t end = begin;
      while (end < kept.size() && kept[end]) ++end;
      if (end > begin) text += fmt::format("{}{}-{}", text.empty() ? "" : ",", begin, end - 1);
      begin = std::max(end, begin + 1);
    }
    return text;
  }

  NetworkGraph& graph_;
  std::map<std::string, FloatTensor>& tensors_;
  std::map<std::string, int64_t> readers_;
  std::set<std::string> droppable_;
  std::map<std::string, Constants> constants_;
  std::map<std::string, Flags> needed_;  ///< channels of a map, or children of a routing layer
};

}  // namespace

NetworkData compacted(NetworkData network) {
  Compaction(network).run();
  return network;
}

std::vector<int64_t> parse_kept(const std::string& text, int64_t count, const std::string& source) {
  std::vector<int64_t> kept;
  const char* next = text.data();
  const char* end = next + text.size();
  const auto number = [&] {
    int64_t value = -1;
    next = std::from_chars(next, end, value).ptr;
    return value;
  };
  while (next != end) {
    const int64_t first = number();
    const bool dash = next != end && *next++ == '-';
    const int64_t last = dash ? number() : -1;
    check(first > (kept.empty() ? -1 : kept.back()) && first <= last && last < count &&
              (next == end || *next++ == ','),
          "{}: the capsules that are kept are damaged: \"{}\"", source, text);
    for (int64_t i = first; i <= last; ++i) kept.push_back(i);
  }
  return kept;
}

}  // namespace remcaps
