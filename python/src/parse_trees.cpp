// The dictionary of parse trees, filled batch by batch. Several threads may use one: they do not hold
// Python's lock while they count.
#include <mutex>

#include "python/src/bindings.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/parse_tree/tree_report.h"

namespace remcaps::python {
namespace {

Tensor tensor_of(const std::vector<uint8_t>& levels) {
  return torch::tensor(levels, torch::kUInt8);
}

class ParseTrees {
 public:
  explicit ParseTrees(int64_t levels) : quantizer_(quantizer_of(levels)) {}

  // The numbers of classes and of children come from the first batch.
  void add(const Tensor& couplings, const Tensor& predicted) {
    check(couplings.dim() == 3 && predicted.dim() == 1 && predicted.size(0) == couplings.size(0),
          "ParseTrees: couplings [{}] and predictions [{}]; expected [B, I, J] and [B]",
          fmt::join(couplings.sizes(), ", "), fmt::join(predicted.sizes(), ", "));
    const Tensor classes = predicted.to(torch::kCPU, torch::kInt64).contiguous();
    const std::lock_guard lock(mutex_);
    const int64_t children = couplings.size(1), parents = couplings.size(2);
    check(classes.numel() == 0 ||
              (classes.min().item<int64_t>() >= 0 && classes.max().item<int64_t>() < parents),
          "ParseTrees: a prediction is outside 0 to {}", parents - 1);
    if (!dictionary_) {
      dictionary_.emplace(parents);
      children_ = children;
    }
    check(parents == dictionary_->classes() && children == children_,
          "ParseTrees: couplings [{}]; the first batch had [B, {}, {}]",
          fmt::join(couplings.sizes(), ", "), children_, dictionary_->classes());
    add_keys(*dictionary_,
             couplings_to(couplings.detach(), predicted.to(couplings.device()).to(torch::kInt64)),
             quantizer_, classes);
  }

  int64_t levels() const { return quantizer_.levels(); }
  std::vector<float> centres() const { return quantizer_.centres(); }
  std::vector<int64_t> samples_per_class() const {
    const std::lock_guard lock(mutex_);
    return seen().samples_per_class();
  }

  LayerTrees report() const {
    const std::lock_guard lock(mutex_);
    LayerTrees trees;
    describe_dictionary(trees, seen(), children_, levels());
    return trees;
  }

  // (count, levels), the most frequent first; no levels if only a key's hash was kept.
  std::vector<std::pair<int64_t, std::optional<Tensor>>> most_frequent(int64_t class_index,
                                                                       int64_t limit) const {
    const std::lock_guard lock(mutex_);
    check(class_index >= 0 && class_index < seen().classes(),
          "ParseTrees: class {}; expected 0 to {}", class_index, seen().classes() - 1);
    std::vector<std::pair<int64_t, std::optional<Tensor>>> result;
    for (const Dictionary::Tree& tree :
         seen().most_frequent(class_index, static_cast<size_t>(std::max<int64_t>(0, limit)))) {
      std::optional<Tensor> key;
      if (!tree.key.empty()) key = tensor_of(decode_key(tree.key, children_, levels()));
      result.emplace_back(tree.count, key);
    }
    return result;
  }

 private:
  const Dictionary& seen() const {
    check(dictionary_.has_value(), "ParseTrees: no couplings were added yet");
    return *dictionary_;
  }

  mutable std::mutex mutex_;
  Quantizer quantizer_;
  std::optional<Dictionary> dictionary_;
  int64_t children_ = 0;
};

}  // namespace

void bind_parse_trees(py::module_& module) {
  py::class_<LayerTrees>(module, "LayerTrees")
      .def_readonly("entropy", &LayerTrees::entropy)
      .def_readonly("entropy_std", &LayerTrees::entropy_std)
      .def_readonly("entropy_per_class", &LayerTrees::entropy_per_class)
      .def_readonly("keys_per_class", &LayerTrees::keys_per_class)
      .def_readonly("median_keys", &LayerTrees::median_keys);
  py::class_<ParseTrees>(module, "ParseTrees")
      .def(py::init<int64_t>())
      .def("add", &ParseTrees::add, WithoutGil())
      .def("levels", &ParseTrees::levels)
      .def("centres", &ParseTrees::centres)
      .def("samples_per_class", &ParseTrees::samples_per_class)
      .def("report", &ParseTrees::report, WithoutGil())
      .def("most_frequent", &ParseTrees::most_frequent, WithoutGil());
}

}  // namespace remcaps::python
