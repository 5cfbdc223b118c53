#include "remcaps/report/runtime_variant.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/parse_tree/tree_report.h"
#include "remcaps/report/page_trees.h"

namespace remcaps {
namespace {

using nlohmann::json;

constexpr int64_t kMeasuredTogether = 64;
constexpr int64_t kMostForMean = 10'000;
constexpr size_t kWeightDims = 4;  // of convolutions and of W_ij; biases and norms have fewer

template <typename T>
torch::Tensor tensor_of_values(const std::vector<T>& values, torch::IntArrayRef shape,
                               torch::ScalarType type) {
  torch::Tensor tensor = torch::empty(shape, type);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

}  // namespace

CompressedTensors compress_network(const NetworkData& network, bool bytes) {
  TensorMap others;
  std::vector<const std::string*> weights;
  for (const auto& [name, tensor] : network.tensors)
    if (bytes && tensor.shape.size() >= kWeightDims)
      weights.push_back(&name);
    else
      others[name] = tensor_of_values(tensor.values, tensor.shape, torch::kFloat32);
  CompressedTensors compressed = compress_tensors(others);
  for (const auto& [name, tensor] : others)  // what half precision would change
    if (compressed.tensors.contains(name) &&
        !tensor.equal(tensor.to(torch::kHalf).to(torch::kFloat)))
      compressed.tensors[name] = tensor;
  auto shapes = json::parse(compressed.metadata.at("packed"))
                    .get<std::map<std::string, std::vector<int64_t>>>();
  for (const std::string* name : weights) {
    const ByteTensor tensor = round_to_bytes(network.tensors.at(*name));
    const auto count = static_cast<int64_t>(tensor.scales.size());
    compressed.tensors[*name + ".scales"] =
        tensor_of_values(tensor.scales, {count}, torch::kFloat32);
    if (const auto sparse = compress_bytes(tensor)) {
      const auto bits = static_cast<int64_t>(sparse->bits.size());
      const auto kept = static_cast<int64_t>(sparse->values.size());
      compressed.tensors[*name + ".bits"] = tensor_of_values(sparse->bits, {bits}, torch::kUInt8);
      compressed.tensors[*name + ".values"] =
          tensor_of_values(sparse->values, {kept}, torch::kInt8);
      shapes[*name] = tensor.shape;
    } else {
      compressed.tensors[*name] = tensor_of_values(tensor.values, tensor.shape, torch::kInt8);
    }
  }
  compressed.metadata = compressed_metadata(shapes);
  return compressed;
}

FloatTensor mean_couplings(const runtime::Network& network, const Dataset& images) {
  const runtime::RoutingLayer& last = network.routing_layers().back();
  const auto size = static_cast<size_t>(last.couplings());
  std::vector<double> sums(size);
  const int64_t step = std::max<int64_t>(1, (images.size() + kMostForMean - 1) / kMostForMean);
  const torch::Tensor some = images.images.slice(0, 0, images.size(), step);
  for (const torch::Tensor& batch : some.split(kMeasuredTogether)) {
    const runtime::Answer answer =
        network.run(prepared_images(network, batch), {.couplings = true});
    const std::vector<float>& couplings = answer.couplings.back();
    for (size_t n = 0; n < couplings.size(); ++n) sums[n % size] += couplings[n];
  }
  FloatTensor mean{{last.children, last.parents}, std::vector<float>(size)};
  for (size_t n = 0; n < size; ++n)
    mean.values[n] = static_cast<float>(sums[n] / static_cast<double>(some.size(0)));
  return mean;
}

void fix_couplings(NetworkData& network, FloatTensor couplings) {
  const auto last =
      std::find_if(network.graph.nodes.rbegin(), network.graph.nodes.rend(), is_routing);
  check(last != network.graph.nodes.rend() && last->op == "dynamic_routing",
        "{}: static routing is for a class layer with dynamic routing", network.graph.network);
  last->tensors["coupling"] = last->name + ".coupling";
  network.tensors[last->tensors["coupling"]] = std::move(couplings);
}

json measure_with_runtime(const runtime::Network& network, const Dataset& images,
                          const std::function<void(int64_t)>& on_progress) {
  const size_t last = network.routing_layers().size() - 1;
  const runtime::RoutingLayer& layer = network.routing_layers()[last];
  Dictionary dictionary(network.classes());
  int64_t done = 0, right = 0, right_quantized = 0;
  const auto label = images.labels.accessor<int64_t, 1>();
  for (const torch::Tensor& batch : images.images.split(kMeasuredTogether)) {
    const std::vector<float> inputs = prepared_images(network, batch);
    const runtime::Answer plain = network.run(inputs);
    const runtime::Answer rounded = network.run(inputs, {.couplings = true, .quantize = true});
    for (int64_t i = 0; i < plain.images; ++i, ++done) {
      right += plain.predicted(i) == label[done] ? 1 : 0;
      if (layer.levels == 0) continue;
      right_quantized += rounded.predicted(i) == label[done] ? 1 : 0;
      dictionary.add(rounded.predicted(i), network.tree_key(rounded, i, last));
    }
    on_progress(done);
  }
  const auto share = [done](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, done));
  };
  json numbers = {{"accuracy", share(right)}};
  if (layer.levels == 0) return numbers;
  LayerTrees trees;
  describe_dictionary(trees, dictionary, layer.children, layer.levels);
  numbers.update({{"accuracy_quantized", share(right_quantized)},
                  {"entropy", trees.entropy},
                  {"entropy_std_over_classes", trees.entropy_std},
                  {"median_keys", trees.median_keys}});
  return numbers;
}

}  // namespace remcaps
