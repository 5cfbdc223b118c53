#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/training/load.h"

namespace remcaps::cli {
namespace {

struct PredictCommand {
  std::string path, device = default_device();
  std::vector<std::string> images;
  int64_t top = 1;
  bool json = false;
};

struct Guess {
  std::string name;
  double activation = 0;  ///< ||v_j||, how sure the network is that the class is there
};

std::vector<Guess> predict(const LoadedRun& run, const std::string& image, int64_t top) {
  torch::NoGradGuard no_grad;
  const torch::Tensor input = run.read_input(image);                                 // [1, C, H, W]
  const torch::Tensor activations = run.model->forward(input).activations[0].cpu();  // [J]
  const auto [values, classes] = activations.topk(std::min(top, activations.size(0)));
  std::vector<Guess> guesses;
  for (int64_t i = 0; i < values.size(0); ++i)
    guesses.push_back({run.class_names.at(static_cast<size_t>(classes[i].item<int64_t>())),
                       values[i].item<double>()});
  return guesses;
}

void run_predict(const PredictCommand& options) {
  LoadedRun run = load_run(options.path, parse_device(options.device));
  run.compute_in("float32");
  nlohmann::json all = nlohmann::json::array();
  for (const auto& image : options.images) {
    const std::vector<Guess> guesses = predict(run, image, options.top);
    nlohmann::json list = nlohmann::json::array();
    std::string line = image;
    for (const auto& guess : guesses) {
      list.push_back({{"class", guess.name}, {"activation", guess.activation}});
      line += fmt::format("  {} {:.3f}", guess.name, guess.activation);
    }
    all.push_back({{"image", image},
                   {"class", guesses[0].name},
                   {"activation", guesses[0].activation},
                   {"top", list}});
    if (!options.json) fmt::print("{}\n", line);
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"model", run.recipe.model},
                                      {"dataset", run.recipe.dataset.name},
                                      {"weights", run.weights.string()},
                                      {"predictions", all}}
                           .dump());
}

}  // namespace

void add_predict(CLI::App& app) {
  auto* command = app.add_subcommand("predict", "Classes of pictures of any size");
  auto options = std::make_shared<PredictCommand>();
  command->add_option("run", options->path, "A run's folder, a weights file or zoo:NAME")
      ->required();
  command->add_option("images", options->images, "PNG or JPEG files")->required();
  command->add_option("--top", options->top, "How many classes to list")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer(
      "Example:\n  remcaps predict runs/imagenette/eff-conv-capsnet/seed-42 dog.jpg --top 3\n\n"
      "It computes in float32, whatever precision the run was trained in.");
  command->callback([options] { run_predict(*options); });
}

}  // namespace remcaps::cli
