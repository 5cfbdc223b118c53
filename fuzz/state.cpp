// The training state of a run with REM: progress, weights, moments and masks. Any other exception
// than Error is a finding, and so is a pruned weight that is not zero.
#include "fuzz/input_file.h"
#include "remcaps/base/error.h"
#include "remcaps/pruning/masks.h"
#include "remcaps/training/checkpoint.h"
#include "tests/recipe/tiny_network.h"

namespace {

struct Run {
  remcaps::Recipe recipe = remcaps::testing::tiny_recipe();
  remcaps::ModelContext context{.input = {1, 6, 6}, .classes = 3, .mean = {0.3}, .std = {0.2}};
  std::shared_ptr<remcaps::CapsNet> model = remcaps::build_model(recipe, context);
  remcaps::Adam adam{parameters(), {}};

  remcaps::Adam::NamedParameters parameters() const {
    remcaps::Adam::NamedParameters named;
    for (const auto& item : model->named_parameters()) named.emplace_back(item.key(), item.value());
    return named;
  }
};

/// Only masks, as every pruner of the program has them.
class MaskPruner : public remcaps::Pruner {
 public:
  explicit MaskPruner(const remcaps::CapsNet& model) : network_(model) {}
  std::map<std::string, torch::Tensor> state() const override { return masks_.state(); }
  void load_state(const std::map<std::string, torch::Tensor>& state) override {
    masks_.load_state(state);
    masks_.bind(network_, {});
    const auto dead = masks_.dead();
    for (const auto& weight : masks_.weights())
      if (dead.contains(weight.name) &&
          weight.tensor.masked_select(dead.at(weight.name)).count_nonzero().item<int64_t>() != 0)
        std::abort();
  }

 private:
  remcaps::PrunableNetwork network_;
  remcaps::Masks masks_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static Run run;
  const remcaps::fuzz::InputFile input(bytes, size);
  auto sums = remcaps::EpochSums::zeros(torch::kCPU);
  MaskPruner pruner(*run.model);
  try {
    const auto progress = remcaps::load_state(input.path(), *run.model, run.adam, pruner, sums);
    if (progress.epoch < 0 || progress.position < 0 || progress.best_epoch >= progress.epoch)
      std::abort();
  } catch (const remcaps::Error&) {
  }
  return 0;
}
