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

}  // namespace

Tensor couplings_to(const Tensor& coupling, const Tensor& classes) {
  const Tensor parent = classes.view({-1, 1, 1}).expand({-1, coupling.size(1), 1});
  return coupling.gather(2, parent).squeeze(2);
}

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
  if (!parts_.half.defined()) {
    parts_.half = torch::zeros({static_cast<int64_t>(samples_per_class_.size())},
                               contributions.options().dtype(torch::kDouble));
    parts_.spread = torch::zeros_like(parts_.half);
    parts_.capsules = contributions.size(1);
  }
  parts_.half.index_add_(0, predicted, parts.half.to(torch::kDouble));
  parts_.spread.index_add_(0, predicted, parts.spread);
}

void TreeCollector::add_unquantized(const Forward& plain) {
  const torch::NoGradGuard no_grad;
  check_layers(plain);
  for (size_t layer = 0; layer < routing_.size(); ++layer) {
    Scores& scores = scores_[layer];
    const Tensor& coupling = plain.routings[layer].coupling;
    if (coupling.size(-1) > 1) {
      add_to(scores.row_entropy, row_entropies(coupling));
      scores.rows += coupling.numel() / coupling.size(-1);
    }
    const Tensor norms = parent_norms(plain, layer);
    if (!norms.defined()) continue;
    const Tensor exact = norms.to(torch::kDouble);
    add_to(scores.norm_sum, exact.sum(0));
    add_to(scores.norm_square, exact.square().sum(0));
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
  // A process whose share has no batch has seen neither couplings nor lengths.
  std::vector<int64_t> totals = {samples_, correct_.defined() ? correct_.item<int64_t>() : 0};
  add_up(totals);
  samples_ = totals[0];
  correct_ = torch::tensor(totals[1]);
  add_up(samples_per_class_);
  add_up(clamped_);
  add_up(couplings_);
  for (size_t layer = 0; layer < routing_.size(); ++layer) {
    Scores& scores = scores_[layer];
    std::vector<double> numbers = {static_cast<double>(key_couplings_[layer]),
                                   static_cast<double>(scores.rows),
                                   static_cast<double>(scores.images)};
    numbers.push_back(scores.rows > 0 ? scores.row_entropy.item<double>() : 0);
    for (const Tensor& sums : {scores.norm_sum, scores.norm_square}) {
      if (!sums.defined()) continue;
      const Tensor host = sums.cpu();
      numbers.insert(numbers.end(), host.data_ptr<double>(),
                     host.data_ptr<double>() + host.numel());
    }
    const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                            numbers.size() * sizeof(double));
    scores = Scores{};
    for (const std::string& part : group.gather(bytes)) {
      std::vector<double> of_rank(part.size() / sizeof(double));
      std::memcpy(of_rank.data(), part.data(), part.size());
      const auto lengths = static_cast<int64_t>(of_rank.size() - 4) / 2;
      key_couplings_[layer] = std::max(key_couplings_[layer], static_cast<int64_t>(of_rank[0]));
      scores.rows += static_cast<int64_t>(of_rank[1]);
      scores.images += static_cast<int64_t>(of_rank[2]);
      add_to(scores.row_entropy, torch::tensor(of_rank[3], torch::kDouble));
      if (lengths == 0) continue;
      const auto copy = [&](int64_t from) {
        const auto first = of_rank.begin() + from;
        return torch::tensor(std::vector<double>(first, first + lengths), torch::kDouble);
      };
      add_to(scores.norm_sum, copy(4));
      add_to(scores.norm_square, copy(4 + lengths));
    }
    if (!quantizers_[layer]) continue;
    Dictionary merged(dictionaries_[layer].classes());
    for (const std::string& part : group.gather(dictionaries_[layer].to_bytes()))
      merged.merge(part);
    dictionaries_[layer] = std::move(merged);
  }
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
      trees.t_score = 1 - scores.row_entropy.item<double>() / static_cast<double>(scores.rows);
    if (scores.images > 0) {
      const Tensor centre = scores.norm_sum / scores.images;
      const Tensor variance = scores.norm_square / scores.images - centre.square();
      trees.d_score = variance.clamp_min(0).sqrt().max().item<double>();
    }
    report.layers.push_back(std::move(trees));
  }
  if (parts_.half.defined()) {
    const Tensor half = parts_.half.cpu(), spread = parts_.spread.cpu();
    const double images = static_cast<double>(std::max<int64_t>(1, samples_));
    report.parts = EffectivePartsReport{parts_.capsules,
                                        half.sum().item<double>() / images,
                                        spread.sum().item<double>() / images,
                                        {},
                                        {}};
    for (size_t j = 0; j < samples_per_class_.size(); ++j) {
      const double of_class =
          samples_per_class_[j] > 0 ? static_cast<double>(samples_per_class_[j]) : std::nan("");
      const int64_t at = static_cast<int64_t>(j);
      report.parts->half_per_class.push_back(half[at].item<double>() / of_class);
      report.parts->spread_per_class.push_back(spread[at].item<double>() / of_class);
    }
  }
  if (quantizers_.back())
    report.most_frequent = most_frequent_trees(dictionaries_.back(), key_couplings_.back(),
                                               quantizers_.back()->levels(), frequent);
  return report;
}

}  // namespace remcaps
