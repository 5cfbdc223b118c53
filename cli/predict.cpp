#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "cli/commands.h"
#include "cli/images.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/runs/load.h"

namespace remcaps::cli {
namespace {

struct PredictCommand {
  std::string path;
  ImageOptions images;
  int64_t top = 1;
  PlaceOptions place;
  bool json = false;
};

struct Guess {
  std::string name;
  double activation = 0;  ///< ||v_j||, how certain the network is of the class
};

// Images per batch. The result of an image must not depend on the other images.
size_t batch_size(const LoadedRun& run) {
  constexpr size_t kBatch = 64;
  return run.model->images_are_independent() ? kBatch : 1;
}

// The activations of a few images, [B, J].
torch::Tensor look_at(const LoadedRun& run, std::span<const ImageInput> images) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> batch;
  for (const ImageInput& image : images) batch.push_back(image.read());
  torch::Tensor activations = run.model->forward(torch::cat(batch)).activations.cpu();
  check(torch::isfinite(activations).all().item<bool>(),
        "{}: the network's answer is not finite (damaged or diverged weights?)",
        run.weights.string());
  return activations;
}

// activations: [J]
std::vector<Guess> best_guesses(const LoadedRun& run, const torch::Tensor& activations,
                                int64_t top) {
  const auto [values, classes] = activations.topk(std::min(top, activations.size(0)));
  std::vector<Guess> guesses;
  for (int64_t i = 0; i < values.size(0); ++i)
    guesses.push_back({run.class_names.at(static_cast<size_t>(classes[i].item<int64_t>())),
                       values[i].item<double>()});
  return guesses;
}

void run_predict(const PredictCommand& options) {
  LoadedRun run = load_run(options.path, parse_device(options.place.device));
  run.compute_in("float32");
  nlohmann::json all = nlohmann::json::array();
  const std::vector<ImageInput> images = list_images(run, options.images, options.place.data);
  const size_t batch = batch_size(run);
  torch::Tensor activations;
  for (size_t at = 0; at < images.size(); ++at) {
    const ImageInput& image = images[at];
    if (at % batch == 0)
      activations =
          look_at(run, std::span(images).subspan(at, std::min(batch, images.size() - at)));
    const std::vector<Guess> guesses =
        best_guesses(run, activations[static_cast<int64_t>(at % batch)], options.top);
    nlohmann::json list = nlohmann::json::array();
    std::string line = image.name;
    for (const auto& guess : guesses) {
      list.push_back({{"class", guess.name}, {"activation", guess.activation}});
      line += fmt::format("  {} {:.3f}", guess.name, guess.activation);
    }
    all.push_back({{"image", image.name},
                   {"class", guesses[0].name},
                   {"activation", guesses[0].activation},
                   {"top", list}});
    if (image.label) all.back()["label"] = *image.label;
    if (!options.json) fmt::print("{}\n", printable(line + image.remark(guesses[0].name)));
  }
  if (options.json)
    fmt::print("{}\n", json_text({{"model", run.recipe.model},
                                  {"dataset", run.recipe.dataset.name},
                                  {"weights", run.weights.string()},
                                  {"predictions", all}}));
}

}  // namespace

void add_predict(CLI::App& app) {
  auto* command =
      app.add_subcommand("predict", "Classes of pictures of any size, or of a data set's images");
  auto options = std::make_shared<PredictCommand>();
  command->add_option("run", options->path, "A run's folder, a weights file or zoo:NAME")
      ->required();
  options->images.add_to(*command);
  command->add_option("--top", options->top, "How many classes to list")
      ->check(at_least(1))
      ->capture_default_str();
  options->place.add_to(*command);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer(fmt::format(
      "Example:\n"
      "  remcaps predict runs/imagenette/eff-conv-capsnet/seed-42 dog.jpg test:0..9 --top 3\n\n"
      "{}\n"
      "It computes in float32, whatever precision the run was trained in.",
      kPicturesHelp));
  command->callback([options] { run_predict(*options); });
}

}  // namespace remcaps::cli
