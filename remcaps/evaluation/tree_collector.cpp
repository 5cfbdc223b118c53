#include "remcaps/evaluation/tree_collector.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "remcaps/base/error.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/ops/quantize.h"

namespace remcaps {

namespace {

// Couplings whose keys are made at once: a convolutional layer has millions in a batch of images.
constexpr int64_t kChunk = 1 << 24;

// The couplings an image's key is made of, [B, N].
Tensor key_couplings(const RoutingTrace& trace, bool last, const Tensor& predicted) {
  return last ? couplings_to(trace.coupling, predicted) : trace.coupling.flatten(1);
}

// Sum over all children of H(c_i) / ln J. A prior can push couplings out of [0, 1] or make their
// sum other than 1: they are clamped and normalised first.
Tensor row_entropies(const Tensor& coupling) {
  const Tensor clamped = coupling.detach().to(torch::kFloat).clamp(0, 1);
  const Tensor share = clamped / clamped.sum(-1, /*keepdim=*/true).clamp_min(1e-12);
  const double scale = 1 / std::log(static_cast<double>(coupling.size(-1)));
  return torch::xlogy(share, share).sum(torch::kDouble).neg() * scale;
}

// ||v_j|| of a layer's parents, [B, J]: that of the class capsules, or of the next layer's children
// if they are the same capsules. Undefined otherwise.
Tensor parent_norms(const Forward& forward, size_t layer) {
  if (layer + 1 == forward.routings.size()) return forward.activations;
  const RoutingTrace& trace = forward.routings[layer];
  const Tensor& next = forward.routings[layer + 1].child_activations;
  const bool same = !trace.convolutional() && next.defined() && next.dim() == 2 &&
                    next.size(1) == trace.coupling.size(-1);
  return same ? next : Tensor();
}

void add_to(Tensor& sum, const Tensor& value) {
  sum = sum.defined() ? sum + value : value;
}

Tensor sum_in_order(const std::vector<Tensor>& batches) {
  Tensor sum;
  for (const Tensor& each : batches) add_to(sum, each);
  return sum;
}

// Process r of n has the batches r, r + n, r + 2n and so on.
template <typename Value>
std::vector<Value> in_order_of_batches(const std::vector<std::vector<Value>>& of_ranks) {
  std::vector<Value> all;
  for (size_t k = 0; k < of_ranks.front().size(); ++k)
    for (const auto& of_rank : of_ranks)
      if (k < of_rank.size()) all.push_back(of_rank[k]);
  return all;
}

// The numbers of each rank.
template <typename Number>
std::vector<std::vector<Number>> gather_numbers(ProcessGroup& group,
                                                const std::vector<Number>& own) {
  std::vector<std::vector<Number>> of_ranks;
  for (const std::string& part :
       group.gather({reinterpret_cast<const char*>(own.data()), own.size() * sizeof(Number)})) {
    auto& numbers = of_ranks.emplace_back(part.size() / sizeof(Number));
    // A process without a batch sends none.
    if (!part.empty()) std::memcpy(numbers.data(), part.data(), part.size());
  }
  return of_ranks;
}

// The float64 tensors of all processes, each of one dimension.
std::vector<Tensor> gather_batches(ProcessGroup& group, const std::vector<Tensor>& own) {
  std::vector<double> numbers;  // of each tensor its length and its values
  for (const Tensor& each : own) {
    const Tensor host = each.cpu().contiguous();
    numbers.push_back(static_cast<double>(host.numel()));
    numbers.insert(numbers.end(), host.data_ptr<double>(), host.data_ptr<double>() + host.numel());
  }
  std::vector<std::vector<Tensor>> of_ranks;
  for (const std::vector<double>& part : gather_numbers(group, numbers)) {
    auto& batches = of_ranks.emplace_back();
    for (auto at = part.begin(); at != part.end();) {
      const auto end = at + 1 + static_cast<int64_t>(*at);
      batches.push_back(torch::tensor(std::vector<double>(at + 1, end), torch::kDouble));
      at = end;
    }
  }
  return in_order_of_batches(of_ranks);
}

// Where a key of a process stands in the sequence of all images.
Dictionary::Place place_of_images(const std::vector<std::vector<int64_t>>& batch_sizes) {
  struct Begin {
    int64_t own, whole;  // images before a batch, in its process and in all
  };
  std::vector<std::vector<Begin>> begins(batch_sizes.size());
  int64_t whole = 0;
  for (size_t k = 0; k < batch_sizes.front().size(); ++k)
    for (size_t rank = 0; rank < batch_sizes.size(); ++rank) {
      if (k >= batch_sizes[rank].size()) continue;
      const int64_t own = k == 0 ? 0 : begins[rank].back().own + batch_sizes[rank][k - 1];
      begins[rank].push_back({own, whole});
      whole += batch_sizes[rank][k];
    }
  return [begins](size_t rank, int64_t place) {
    const auto next =
        std::upper_bound(begins[rank].begin(), begins[rank].end(), place,
                         [](int64_t at, const Begin& begin) { return at < begin.own; });
    const Begin& batch = *std::prev(next);
    return batch.whole + place - batch.own;
  };
}

}  // namespace

void add_keys(Dictionary& dictionary, const Tensor& couplings, const Quantizer& quantizer,
              const Tensor& classes) {
  const int64_t images = couplings.size(0);
  const int64_t step = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, couplings.size(1)));
  const int64_t* class_of = classes.data_ptr<int64_t>();
  for (int64_t begin = 0; begin < images; begin += step) {
    const Tensor part = couplings.slice(0, begin, std::min(images, begin + step));
    const Tensor keys = encode_keys(part, quantizer).cpu();
    const char* bytes = reinterpret_cast<const char*>(keys.data_ptr<uint8_t>());
    const size_t length = static_cast<size_t>(keys.size(1));
    for (int64_t row = 0; row < keys.size(0); ++row)
      dictionary.add(class_of[begin + row], {bytes + row * length, length});
  }
}

TreeCollector::TreeCollector(const CapsNet& model, std::vector<std::optional<Quantizer>> quantizers,
                             LastLayer last_layer)
    : routing_(model.routing_layers()), quantizers_(std::move(quantizers)) {
  check(!routing_.empty(), "parse trees: {} has no routing layer", model.name());
  check(quantizers_.size() == routing_.size(),
        "parse trees: {} quantizer(s) for {} routing layer(s)", quantizers_.size(),
        routing_.size());
  check(last_layer == LastLayer::kOptional || quantizers_.back().has_value(),
        "parse trees: the couplings of the last routing layer ({}) are not quantized; give it a K",
        routing_.back().name);
  dictionaries_.assign(routing_.size(), Dictionary(model.classes()));
  scores_.resize(routing_.size());
  samples_per_class_.assign(model.classes(), 0);
  clamped_.assign(routing_.size(), 0);
  couplings_.assign(routing_.size(), 0);
  key_couplings_.assign(routing_.size(), 0);
}

void TreeCollector::check_layers(const Forward& forward) const {
  check(forward.routings.size() == routing_.size(),
        "parse trees: the forward pass traced {} of {} routing layers", forward.routings.size(),
        routing_.size());
}

void TreeCollector::add(const Forward& quantized, const Tensor& labels) {
  const torch::NoGradGuard no_grad;
  check_layers(quantized);
  const Tensor predicted = quantized.activations.argmax(1);
  add_to(correct_, predicted.eq(labels).sum());
  samples_ += predicted.size(0);
  batch_sizes_.push_back(predicted.size(0));
  const Tensor class_of = predicted.cpu();
  for (int64_t row = 0; row < class_of.size(0); ++row)
    ++samples_per_class_[class_of.data_ptr<int64_t>()[row]];
  if (quantized.routings.back().contribution.defined()) add_parts(quantized, predicted);
  for (size_t layer = 0; layer < routing_.size(); ++layer) {
    const RoutingTrace& trace = quantized.routings[layer];
    clamped_[layer] += trace.clamped;
    couplings_[layer] += trace.coupling.numel();
    if (!quantizers_[layer]) continue;
    const bool last = layer + 1 == routing_.size();
    const Tensor couplings = key_couplings(trace, last, predicted);
    key_couplings_[layer] = couplings.size(1);
    add_keys(dictionaries_[layer], couplings, *quantizers_[layer], class_of);
  }
}

void TreeCollector::add_parts(const Forward& quantized, const Tensor& predicted) {
  const Tensor contributions =
      evidence_for(quantized.routings, first_chained_layer(quantized.routings), predicted).children;
  const EffectiveParts parts = effective_parts(contributions);
  parts_.capsules = contributions.size(1);
  parts_.half.push_back(parts.half.to(torch::kDouble));
  parts_.spread.push_back(parts.spread.to(torch::kDouble));
  parts_.predicted.push_back(predicted.to(torch::kDouble));
}

void TreeCollector::add_unquantized(const Forward& plain) {
  const torch::NoGradGuard no_grad;
  check_layers(plain);
  for (size_t layer = 0; layer < routing_.size(); ++layer) {
    Scores& scores = scores_[layer];
    const Tensor& coupling = plain.routings[layer].coupling;
    if (coupling.size(-1) > 1) {
      scores.row_entropy.push_back(row_entropies(coupling).view({1}));
      scores.rows += coupling.numel() / coupling.size(-1);
    }
    const Tensor norms = parent_norms(plain, layer);
    if (!norms.defined()) continue;
    const Tensor exact = norms.to(torch::kDouble);
    scores.norm_sum.push_back(exact.sum(0));
    scores.norm_square.push_back(exact.square().sum(0));
    scores.images += norms.size(0);
  }
}

void TreeCollector::merge(ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const auto add_up = [&](std::vector<int64_t>& counts) {
    const Tensor sums = torch::tensor(counts, torch::kInt64);
    group.all_reduce_sum(sums);
    counts.assign(sums.data_ptr<int64_t>(), sums.data_ptr<int64_t>() + sums.numel());
  };
  std::vector<int64_t> totals = {samples_, correct_.defined() ? correct_.item<int64_t>() : 0};
  add_up(totals);
  samples_ = totals[0];
  correct_ = torch::tensor(totals[1]);
  add_up(samples_per_class_);
  add_up(clamped_);
  add_up(couplings_);
  // A process whose share has no batch does not know these sizes.
  std::vector<int64_t> sizes = key_couplings_;
  sizes.push_back(parts_.capsules);
  for (const auto& of_rank : gather_numbers(group, sizes))
    for (size_t k = 0; k < sizes.size(); ++k) sizes[k] = std::max(sizes[k], of_rank[k]);
  parts_.capsules = sizes.back();
  key_couplings_.assign(sizes.begin(), sizes.end() - 1);
  for (OfBatches* each : {&parts_.half, &parts_.spread, &parts_.predicted})
    *each = gather_batches(group, *each);

  const auto batch_sizes = gather_numbers(group, batch_sizes_);
  const Dictionary::Place place = place_of_images(batch_sizes);
  batch_sizes_ = in_order_of_batches(batch_sizes);
  for (size_t layer = 0; layer < routing_.size(); ++layer) {
    Scores& scores = scores_[layer];
    std::vector<int64_t> counts = {scores.rows, scores.images};
    add_up(counts);
    scores.rows = counts[0];
    scores.images = counts[1];
    for (OfBatches* each : {&scores.row_entropy, &scores.norm_sum, &scores.norm_square})
      *each = gather_batches(group, *each);
    if (!quantizers_[layer]) continue;
    Dictionary merged(dictionaries_[layer].classes());
    merged.merge(group.gather(dictionaries_[layer].to_bytes()), place);
    dictionaries_[layer] = std::move(merged);
  }
}

EffectivePartsReport TreeCollector::report_parts() const {
  const Tensor predicted = torch::cat(parts_.predicted).to(torch::kLong);
  const auto by_class = [&](const OfBatches& values) {
    const Tensor all = torch::cat(values);
    return torch::zeros({static_cast<int64_t>(samples_per_class_.size())}, all.options())
        .index_add_(0, predicted, all)
        .cpu();
  };
  const Tensor half = by_class(parts_.half), spread = by_class(parts_.spread);
  const double images = static_cast<double>(std::max<int64_t>(1, samples_));
  EffectivePartsReport report;
  report.capsules = parts_.capsules;
  report.half = half.sum().item<double>() / images;
  report.spread = spread.sum().item<double>() / images;
  for (size_t j = 0; j < samples_per_class_.size(); ++j) {
    const double of_class =
        samples_per_class_[j] > 0 ? static_cast<double>(samples_per_class_[j]) : std::nan("");
    const int64_t at = static_cast<int64_t>(j);
    report.half_per_class.push_back(half[at].item<double>() / of_class);
    report.spread_per_class.push_back(spread[at].item<double>() / of_class);
  }
  return report;
}

ParseTreeReport TreeCollector::report(size_t frequent) const {
  ParseTreeReport report;
  report.samples = samples_;
  if (samples_ > 0)
    report.accuracy_quantized =
        static_cast<double>(correct_.item<int64_t>()) / static_cast<double>(samples_);
  report.samples_per_class = samples_per_class_;
  for (size_t layer = 0; layer < routing_.size(); ++layer) {
    LayerTrees trees;
    trees.layer = routing_[layer].name;
    trees.clamped = clamped_[layer];
    trees.couplings = couplings_[layer];
    if (quantizers_[layer])
      describe_dictionary(trees, dictionaries_[layer], key_couplings_[layer],
                          quantizers_[layer]->levels());
    const Scores& scores = scores_[layer];
    if (scores.rows > 0)
      trees.t_score =
          1 - sum_in_order(scores.row_entropy).item<double>() / static_cast<double>(scores.rows);
    if (scores.images > 0) {
      const Tensor centre = sum_in_order(scores.norm_sum) / scores.images;
      const Tensor variance = sum_in_order(scores.norm_square) / scores.images - centre.square();
      trees.d_score = variance.clamp_min(0).sqrt().max().item<double>();
    }
    report.layers.push_back(std::move(trees));
  }
  if (!parts_.half.empty()) report.parts = report_parts();
  if (quantizers_.back())
    report.most_frequent = most_frequent_trees(dictionaries_.back(), key_couplings_.back(),
                                               quantizers_.back()->levels(), frequent);
  return report;
}

}  // namespace remcaps
