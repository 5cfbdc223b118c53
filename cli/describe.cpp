#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/text.h"
#include "remcaps/evaluation/memory.h"
#include "remcaps/recipe/context.h"

namespace remcaps::cli {
namespace {

struct DescribeCommand {
  std::string recipe, folder, data;
  std::vector<std::string> overrides;
  int64_t batch = 0;
  bool json = false;
};

std::string bytes_text(int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

void print_network_table(const Recipe& recipe, const CapsNet& model, int64_t batch) {
  const ImageShape input = model.input();
  fmt::print("{}: {} on {}, input {}x{}x{}, {} classes\n\n", recipe.name, recipe.model,
             recipe.dataset.name, input.channels, input.height, input.width, model.classes());
  fmt::print("{:<14} {:<38} {:>14} {:>12} {:>15} {:>12}\n", "layer", "kind", "output", "parameters",
             "multiply-adds", "votes");
  int64_t multiply_adds = 0;
  for (const auto& layer : model.costs()) {
    fmt::print("{:<14} {:<38} {:>14} {:>12} {:>15} {:>12}\n", layer.name, layer.kind,
               shape_text(layer.output), with_commas(layer.parameters),
               with_commas(layer.multiply_adds),
               layer.vote_floats > 0 ? with_commas(layer.vote_floats) : "");
    multiply_adds += layer.multiply_adds;
  }
  const int64_t frozen = model.all_parameters() - model.trainable_parameters();
  fmt::print("\nparameters     {}{}\n", with_commas(model.trainable_parameters()),
             frozen > 0 ? fmt::format(" trained, {} frozen", with_commas(frozen)) : "");
  fmt::print("multiply-adds  {} per image, forward\n", with_commas(multiply_adds));
  for (const auto& routing : model.routing_layers())
    fmt::print("routing        {}: {} children{}, {} parents, {} iteration(s)\n", routing.name,
               routing.children, routing.convolutional ? " a window" : "", routing.parents,
               routing.iterations);
  const MemoryEstimate memory = estimate_memory(model, batch);
  fmt::print(
      "memory         at batch {}: weights {}, gradients and Adam {}, activations {}, votes {}\n",
      batch, bytes_text(memory.weights), bytes_text(memory.optimiser),
      bytes_text(memory.activations), bytes_text(memory.votes));
  fmt::print(
      "               training needs about {}, {} where votes are kept (kernels: reference)\n",
      bytes_text(memory.fused()), bytes_text(memory.plain()));
}

void print_network_json(const Recipe& recipe, const CapsNet& model, int64_t batch) {
  const ImageShape input = model.input();
  const MemoryEstimate memory = estimate_memory(model, batch);
  nlohmann::json layers = nlohmann::json::array(), routings = nlohmann::json::array();
  int64_t multiply_adds = 0;
  for (const auto& layer : model.costs()) {
    layers.push_back({{"name", layer.name},
                      {"kind", layer.kind},
                      {"output", layer.output},
                      {"parameters", layer.parameters},
                      {"multiply_adds", layer.multiply_adds},
                      {"vote_floats", layer.vote_floats},
                      {"activation_floats", layer.activation_floats}});
    multiply_adds += layer.multiply_adds;
  }
  for (const auto& routing : model.routing_layers())
    routings.push_back({{"name", routing.name},
                        {"children", routing.children},
                        {"parents", routing.parents},
                        {"iterations", routing.iterations},
                        {"convolutional", routing.convolutional}});
  fmt::print("{}\n", json_text({{"recipe", recipe.name},
                                {"model", recipe.model},
                                {"dataset", recipe.dataset.name},
                                {"input", {input.channels, input.height, input.width}},
                                {"classes", model.classes()},
                                {"parameters", model.trainable_parameters()},
                                {"parameters_all", model.all_parameters()},
                                {"multiply_adds", multiply_adds},
                                {"layers", layers},
                                {"routing", routings},
                                {"batch", batch},
                                {"bytes",
                                 {{"weights", memory.weights},
                                  {"optimiser", memory.optimiser},
                                  {"activations", memory.activations},
                                  {"votes", memory.votes},
                                  {"fused", memory.fused()},
                                  {"plain", memory.plain()}}}}));
}

void run_describe(const DescribeCommand& options) {
  Recipe recipe = load_recipe(options.recipe, options.overrides);
  use_folder(recipe.dataset, options.folder);
  std::optional<ModelContext> context = known_context(recipe);
  if (!context)
    context = model_context(recipe, load_dataset(recipe.dataset, data_root(options.data)));
  const auto model = build_model(recipe, *context);
  (options.json ? print_network_json : print_network_table)(
      recipe, *model, options.batch > 0 ? options.batch : recipe.train.batch);
}

}  // namespace

void add_describe(CLI::App& app) {
  auto* command = app.add_subcommand(
      "describe", "Layers, shapes, parameters, multiply-adds and memory of a recipe's network");
  auto options = std::make_shared<DescribeCommand>();
  command->add_option("recipe", options->recipe, "A recipe's name or its file")->required();
  command->add_option("--batch", options->batch, "Batch size of the memory (default: the recipe's)")
      ->check(between(1, 65536));
  command->add_option("--set", options->overrides, "Change a key of the recipe, repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--folder", options->folder, kFolderHelp);
  command->add_option("--data", options->data,
                      "Folder of the data sets; only read if the images' shape is not known");
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer("Example:\n  remcaps describe mnist/dr-capsnet --batch 128");
  command->callback([options] { run_describe(*options); });
}

}  // namespace remcaps::cli
