// The pruning strategies of the program, for the parameters of any Python model. Several threads may
// use one: they do not hold Python's lock while they work.
#include <mutex>

#include "remcaps/pruning/pruner.h"

#include "python/src/bindings.h"

namespace remcaps::python {
namespace {

using NamedParameters = std::vector<std::pair<std::string, Tensor>>;

// The parameter itself; a module may have this name, too.
bool is_prior(const std::string& name) {
  return name == "prior" || name.ends_with(".prior");
}

// A layer is prunable if it owns a weight: a tensor of two or more dimensions that is no bias.
// Norms have none. The prior of self-attention routing is left alone, as in the program.
PrunableNetwork network_of(const NamedParameters& parameters) {
  PrunableNetwork network;
  network.name = "the model";
  for (const auto& [name, tensor] : parameters) {
    if (is_prior(name)) continue;
    network.parameters.push_back({name, tensor});
    if (tensor.dim() < 2 || selects("*bias*", name)) continue;
    network.searched.push_back(name);
    const std::string layer = name.substr(0, name.rfind('.'));
    std::vector<std::string>& layers = network.prunable_layers;
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
  }
  return network;
}

class ModelPruner {
 public:
  // `options` is the `pruning` section of a recipe.
  ModelPruner(const NamedParameters& parameters, const std::string& options)
      : network_(network_of(parameters)) {
    ConfigSection section(parse_yaml(options), "", "pruning");
    pruner_ = make_pruner(section);
  }

  void at_initialisation(const std::function<void()>& gradients_of_one_batch) {
    const std::lock_guard lock(mutex_);
    PruningContext context{.model = network_, .gradients_of_one_batch = gradients_of_one_batch};
    pruner_->at_initialisation(context);
  }
  void before_epoch(int64_t epoch) {
    const std::lock_guard lock(mutex_);
    PruningContext context{.model = network_, .epoch = epoch};
    pruner_->before_epoch(context);
  }
  void after_backward(int64_t epoch) {
    const std::lock_guard lock(mutex_);
    PruningContext context{.model = network_, .epoch = epoch};
    pruner_->after_backward(context);
  }
  void after_step(int64_t epoch) {
    const std::lock_guard lock(mutex_);
    PruningContext context{.model = network_, .epoch = epoch};
    pruner_->after_step(context);
  }
  PruningReport after_epoch(int64_t epoch, double loss, double accuracy,
                            const std::function<double()>& validation_loss) {
    const std::lock_guard lock(mutex_);
    PruningContext context{.model = network_,
                           .epoch = epoch,
                           .validation_loss = validation_loss,
                           .epoch_validation_loss = loss,
                           .epoch_validation_accuracy = accuracy};
    return pruner_->after_epoch(context);
  }

  std::map<std::string, Tensor> state() const {
    const std::lock_guard lock(mutex_);
    return pruner_->state();
  }
  void load_state(const std::map<std::string, Tensor>& state) {
    const std::lock_guard lock(mutex_);
    pruner_->load_state(state);
  }

 private:
  mutable std::recursive_mutex mutex_;  // a function of the user may call us again
  PrunableNetwork network_;
  std::unique_ptr<Pruner> pruner_;
};

}  // namespace

void bind_pruner(py::module_& module) {
  py::class_<PruningReport>(module, "PruningReport")
      .def_readonly("pruned", &PruningReport::pruned)
      .def_readonly("threshold", &PruningReport::threshold)
      .def_readonly("evaluations", &PruningReport::evaluations)
      .def_readonly("loss_before", &PruningReport::loss_before)
      .def_readonly("loss_after", &PruningReport::loss_after);
  py::class_<ModelPruner>(module, "Pruner")
      .def(py::init<NamedParameters, std::string>())
      .def("at_initialisation", &ModelPruner::at_initialisation, WithoutGil())
      .def("before_epoch", &ModelPruner::before_epoch, WithoutGil())
      .def("after_backward", &ModelPruner::after_backward, WithoutGil())
      .def("after_step", &ModelPruner::after_step, WithoutGil())
      .def("after_epoch", &ModelPruner::after_epoch, WithoutGil())
      .def("state", &ModelPruner::state, WithoutGil())
      .def("load_state", &ModelPruner::load_state, WithoutGil());
}

}  // namespace remcaps::python
