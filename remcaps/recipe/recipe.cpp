#include "remcaps/recipe/recipe.h"

#include <ATen/Context.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/base/names.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/recipe/resources.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
constexpr double kHuge = 1e9;

const RenamedKeys& renamed_keys() {
  static const RenamedKeys keys = {{"pruning", "twt", "tolerance"},
                                   {"pruning", "pwe", "patience_epochs"}};
  return keys;
}

void bind(ConfigSection& section, LossOptions& options) {
  section.key("kind", options.kind, {"margin", "cross-entropy"});
  section.key("m_plus", options.m_plus, {0.0, 1.0});
  section.key("m_minus", options.m_minus, {0.0, 1.0});
  section.key("lambda", options.lambda, {0.0, 100.0});
  section.key("reconstruction", options.reconstruction, {0.0, 1000.0});
  section.key("switch_epoch", options.switch_epoch, {-1, kMany});
  section.key("switched_m_plus", options.switched_m_plus, {0.0, 1.0});
  section.key("switched_m_minus", options.switched_m_minus, {0.0, 1.0});
  section.key("switched_lambda", options.switched_lambda, {0.0, 100.0});
}

void bind(ConfigSection& section, TrainOptions& options) {
  section.key("batch", options.batch, {1, 65536});
  section.key("lr", options.lr, {0.0, 10.0});
  section.key("lr_decay", options.lr_decay, {0.0, 1.0});
  section.key("min_lr", options.min_lr, {0.0, 10.0});
  section.key("beta1", options.beta1, {0.0, 0.999999});
  section.key("beta2", options.beta2, {0.0, 0.999999});
  section.key("eps", options.eps, {0.0, 1.0});
  section.key("epochs", options.epochs, {0, kMany});
  section.key("minutes", options.minutes, {0.0, kHuge});
  section.key("patience", options.patience, {0, kMany});
  section.key("stop_accuracy", options.stop_accuracy, {0.0, 1.0});
  section.key("start_from", options.start_from);
  section.key("start_recipe", options.start_recipe);
  section.key("freeze", options.freeze);
  section.key("seed", options.seed, {0, kMany});
  section.key("checkpoint_epochs", options.checkpoint_epochs, {1, kMany});
  section.key("checkpoint_seconds", options.checkpoint_seconds, {0.0, kHuge});
  section.key("checkpoint_steps", options.checkpoint_steps, {0, kMany});
  section.key("checkpoint_minutes", options.checkpoint_minutes, {0.0, kHuge});
}

void bind(ConfigSection& section, QuantizeOptions& options) {
  section.key("levels", options.levels, {0, 256});
  if (options.levels.empty()) section.reject("levels", "[]", "one K, or one per routing layer");
  for (const int64_t levels : options.levels)
    if (levels == 1) section.reject("levels", "1", "0 (leave the layer alone) or at least 2");
  section.key("form", options.form, {"uniform", "bins"});
}

void bind(ConfigSection& section, MetricsOptions& options) {
  section.key("every", options.every, {0, kMany});
  section.key("keep_epochs", options.keep_epochs, {0, kMany});
}

template <typename Options>
void bind_section(ConfigSection& root, const std::string& name, Options& options) {
  ConfigSection section = root.section(name);
  bind(section, options);
  section.finish();
  root.adopt(name, section);
}

// Reads all sections from `node`. Returns the resolved recipe, which is how recipes are written.
YAML::Node bind_recipe(Recipe& recipe, const YAML::Node& node) {
  ConfigSection root(node, recipe.name);
  root.key("about", recipe.about);
  bind_section(root, "dataset", recipe.dataset);

  // Only the name is read here. The network checks its own keys when it is made.
  const YAML::Node& read_only = node;
  const YAML::Node given = read_only["model"];
  ConfigSection model = root.section("model");
  model.key("name", recipe.model);
  // Not by =, which would change the nodes of all copies of the recipe, and add to their memory.
  recipe.model_options.reset(given ? YAML::Clone(given) : YAML::Node(YAML::NodeType::Map));
  recipe.model_options.remove("name");

  bind_section(root, "loss", recipe.loss);
  bind_section(root, "train", recipe.train);
  ConfigSection pruning = root.section("pruning");
  make_pruner(pruning);
  pruning.finish();
  root.adopt("pruning", pruning);
  recipe.pruning.reset(pruning.resolved());
  bind_section(root, "quantize", recipe.quantize);
  bind_section(root, "metrics", recipe.metrics);
  root.key("kernels", recipe.kernels, {"fused", "reference"});
  root.key("deterministic", recipe.deterministic);
  root.key("precision", recipe.precision, {"float32", "tf32", "bf16"});
  root.key("cuda_graph", recipe.cuda_graph);
  root.finish();

  YAML::Node resolved = YAML::Clone(root.resolved());
  resolved["model"] = merge_yaml(model.resolved(), recipe.model_options);
  return resolved;
}

// base.yaml and other files directly in a recipe folder are parts to include, not recipes.
bool is_recipe(const fs::path& relative) {
  return relative.extension() == ".yaml" && relative.has_parent_path();
}

std::string name_of(const fs::path& path) {
  for (const auto& folder : resource_folders("recipes")) {
    std::error_code error;
    const fs::path relative = fs::relative(path, folder, error);
    if (!error && !relative.empty() && *relative.begin() != ".." && is_recipe(relative))
      return fs::path(relative).replace_extension().generic_string();
  }
  return fs::path(path).replace_extension().filename().string();
}

}  // namespace

MarginOptions LossOptions::margin(int64_t epoch) const {
  const bool switched = switch_epoch >= 0 && epoch >= switch_epoch;
  MarginOptions margins;
  margins.cross_entropy = kind == "cross-entropy";
  margins.m_plus = switched ? switched_m_plus : m_plus;
  margins.m_minus = switched ? switched_m_minus : m_minus;
  margins.lambda = switched ? switched_lambda : lambda;
  return margins;
}

double TrainOptions::lr_at(int64_t epoch) const {
  return std::max(min_lr, lr * std::pow(lr_decay, static_cast<double>(epoch)));
}

std::vector<std::optional<Quantizer>> QuantizeOptions::quantizers(size_t routing_layers) const {
  check(levels.size() == 1 || levels.size() == routing_layers,
        "quantize.levels has {} numbers; the network has {} routing layer(s)", levels.size(),
        routing_layers);
  std::vector<std::optional<Quantizer>> result;
  for (size_t layer = 0; layer < routing_layers; ++layer) {
    const int64_t k = levels.size() == 1 ? levels[0] : levels[layer];
    if (k == 0)
      result.emplace_back(std::nullopt);
    else
      result.emplace_back(Quantizer::of_form(form, k));
  }
  return result;
}

bool Recipe::prunes() const {
  const YAML::Node& section = pruning;
  return section && section["strategy"] && section["strategy"].as<std::string>() != "none";
}

YAML::Node Recipe::to_yaml() const {
  Recipe copy = *this;
  YAML::Node given(YAML::NodeType::Map);
  given["model"] = YAML::Clone(model_options);
  given["pruning"] = YAML::Clone(pruning);
  // bind() starts from the data set's default augmentation, so the values of this recipe must be
  // given as keys.
  ConfigSection augment(YAML::Node(), name);
  remcaps::bind(augment, copy.dataset.augment);
  given["dataset"]["name"] = dataset.name;
  given["dataset"]["augment"] = augment.resolved();
  return bind_recipe(copy, given);
}

std::string Recipe::to_text() const {
  YAML::Emitter emitter;
  emitter.SetSeqFormat(YAML::Flow);
  emitter << to_yaml();
  return std::string(emitter.c_str()) + "\n";
}

std::vector<std::string> recipe_names() {
  std::set<std::string> names;
  for (const auto& folder : resource_folders("recipes")) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      const fs::path relative = it->path().lexically_relative(folder);
      if (is_recipe(relative))
        names.insert(fs::path(relative).replace_extension().generic_string());
    }
  }
  return {names.begin(), names.end()};
}

fs::path find_recipe(const std::string& name_or_path) {
  std::error_code error;
  if (fs::is_regular_file(name_or_path, error)) return name_or_path;
  std::vector<std::string> searched;
  for (const auto& folder : resource_folders("recipes")) {
    const fs::path path = folder / (name_or_path + ".yaml");
    if (fs::is_regular_file(path, error)) return path;
    searched.push_back(folder.string());
  }
  if (fs::exists(fs::path(name_or_path) / "run.json", error))
    throw UsageError(
        fmt::format("{} is a run; go on with it: remcaps resume {}", name_or_path, name_or_path));
  const std::string nearest = nearest_name(name_or_path, recipe_names());
  throw UsageError(fmt::format("no recipe \"{}\"{}", name_or_path,
                               nearest.empty() ? fmt::format(" in {}", fmt::join(searched, ", "))
                                               : fmt::format("; did you mean {}?", nearest)));
}

std::string current_key(const std::string& path) {
  for (const RenamedKey& key : renamed_keys())
    if (path == key.section + "." + key.old_name) return key.section + "." + key.new_name;
  return path;
}

Recipe parse_recipe(const YAML::Node& node, const std::string& name) {
  Recipe recipe;
  recipe.name = name;
  YAML::Node current = YAML::Clone(node);
  rename_keys(current, renamed_keys(), name);
  bind_recipe(recipe, current);
  return recipe;
}

Recipe parse_stored_recipe(const YAML::Node& node, const std::string& name) {
  YAML::Node complete = YAML::Clone(node);
  const YAML::Node& read_only = complete;
  const YAML::Node model = read_only["model"];
  // Efficient-CapsNet's backbone, the only one with a choice of norms, had fixed epsilons.
  if (model && model.IsMap() && model["norm"] && !model["norm_epsilon"])
    complete["model"]["norm_epsilon"] =
        model["norm"].as<std::string>() == "instance" ? "1e-06" : "1e-05";
  return parse_recipe(complete, printable(name));
}

Recipe load_recipe(const std::string& name_or_path, const std::vector<std::string>& overrides) {
  const fs::path path = find_recipe(name_or_path);
  const YAML::Node node = load_yaml_with_includes(path.string(), renamed_keys());
  YAML::Node given(YAML::NodeType::Map);
  for (const auto& assignment : overrides) set_yaml_path(given, assignment);
  rename_keys(given, renamed_keys(), "--set");
  Recipe recipe = parse_recipe(merge_yaml(node, given), name_of(path));
  // With another data set it is not that recipe any more.
  if (given["dataset"]["name"])
    recipe.name = (fs::path(recipe.dataset.name) / fs::path(recipe.name).filename()).string();
  return recipe;
}

std::shared_ptr<CapsNet> build_model(Recipe& recipe, ModelContext context) {
  context.kernels = recipe.kernel_path();
  // The only use of a generator with a state. All later random numbers are counter-based.
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  ConfigSection section(YAML::Clone(recipe.model_options), recipe.name, "model");
  auto model = make_network(recipe.model, context, section);
  section.finish();
  recipe.model_options.reset(YAML::Clone(section.resolved()));
  return model;
}

}  // namespace remcaps
