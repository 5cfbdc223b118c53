#include "remcaps/pruning/pruner.h"

#include "remcaps/pruning/lobster_pruner.h"
#include "remcaps/pruning/scheduled.h"
#include "remcaps/pruning/snip.h"

namespace remcaps {

namespace {

template <typename Strategy, typename Options>
PrunerFactory factory() {
  return [](ConfigSection& section) {
    Options options;
    bind(section, options);
    return std::make_unique<Strategy>(std::move(options));
  };
}

PrunerFactory scheduled(ScheduledOptions defaults) {
  return [defaults](ConfigSection& section) {
    ScheduledOptions options = defaults;
    bind(section, options);
    return std::make_unique<ScheduledPruner>(std::move(options));
  };
}

// Its empty rule lets the optimiser use its one-pass update.
class NoPruning : public Pruner {
 public:
  std::optional<UpdateRule> update_rule(PruningContext&) override { return UpdateRule{}; }
};

std::map<std::string, PrunerFactory>& registry() {
  static std::map<std::string, PrunerFactory> factories = {
      {"none", [](ConfigSection&) { return std::make_unique<NoPruning>(); }},
      {"lobster", factory<LobsterPruner, LobsterOptions>()},
      {"snip", factory<SnipPruner, SnipOptions>()},
      {"magnitude", scheduled({.score = ScheduledOptions::Score::kMagnitude, .end = 50})},
      {"random", scheduled({.score = ScheduledOptions::Score::kRandom, .end = 0})},
  };
  return factories;
}

}  // namespace

std::unique_ptr<Pruner> make_pruner(ConfigSection& section) {
  std::string strategy = "none";
  section.key("strategy", strategy, pruner_names());
  std::unique_ptr<Pruner> pruner = registry().at(strategy)(section);
  section.finish();
  return pruner;
}

std::vector<std::string> pruner_names() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry()) names.push_back(name);
  return names;
}

void register_pruner(const std::string& name, PrunerFactory factory) {
  registry()[name] = std::move(factory);
}

}  // namespace remcaps
