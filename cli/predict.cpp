#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "cli/commands.h"
#include "cli/images.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/text.h"
#include "remcaps/runs/load.h"

namespace remcaps::cli {
namespace {

struct PredictCommand {
  std::string path;
  ImageOptions images;
  int64_t top = 1;
  PlaceOptions place;
  bool json = false, csv = false;
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

// Prints predictions as text or CSV while they come, or as one JSON object at the end.
class PredictionPrinter {
 public:
  PredictionPrinter(const PredictCommand& options, const LoadedRun& run)
      : options_(options), run_(run) {}

  void add(const ImageInput& image, const std::vector<Guess>& guesses) {
    if (options_.json) return add_json(image, guesses);
    std::vector<std::string> values = {printable(image.name), printable(image.label.value_or(""))};
    std::string line = image.name;
    for (const Guess& guess : guesses) {
      values.insert(values.end(), {printable(guess.name), fmt::format("{:.6g}", guess.activation)});
      line += fmt::format("  {} {:.3f}", guess.name, guess.activation);
    }
    if (options_.csv && !std::exchange(has_header_, true)) fmt::print("{}", header());
    if (options_.csv)
      fmt::print("{}", csv_row(values));
    else
      fmt::print("{}\n", printable(line + image.remark(guesses[0].name)));
  }

  // The others are still predicted. If there are none, this is the command's error.
  void add_unreadable(const std::string& file, const std::string& message) {
    const std::vector<std::string>& words = options_.images.words;
    if (words.size() == 1 && !std::filesystem::is_directory(words[0])) fail("{}", message);
    std::fflush(stdout);
    say("remcaps: {}", message);
    unreadable_.push_back({{"image", file}, {"error", message}});
  }

  void finish(size_t images) {
    if (options_.json)
      fmt::print("{}\n", json_text({{"model", run_.recipe.model},
                                    {"dataset", run_.recipe.dataset.name},
                                    {"weights", run_.weights.string()},
                                    {"predictions", predictions_},
                                    {"unreadable", unreadable_}}));
    std::fflush(stdout);
    check(unreadable_.empty(), "{} of {} images cannot be read", unreadable_.size(), images);
  }

 private:
  std::string header() const {
    std::vector<std::string> columns = {"image", "label", "class", "activation"};
    for (int64_t k = 2; k <= std::min(options_.top, run_.model->classes()); ++k)
      columns.insert(columns.end(), {fmt::format("class_{}", k), fmt::format("activation_{}", k)});
    return csv_row(columns);
  }

  void add_json(const ImageInput& image, const std::vector<Guess>& guesses) {
    nlohmann::json list = nlohmann::json::array();
    for (const Guess& guess : guesses)
      list.push_back({{"class", guess.name}, {"activation", guess.activation}});
    predictions_.push_back({{"image", image.name},
                            {"class", guesses[0].name},
                            {"activation", guesses[0].activation},
                            {"top", list}});
    if (image.label) predictions_.back()["label"] = *image.label;
  }

  const PredictCommand& options_;
  const LoadedRun& run_;
  bool has_header_ = false;
  nlohmann::json predictions_ = nlohmann::json::array(), unreadable_ = nlohmann::json::array();
};

void predict_batch(const PredictCommand& options, const LoadedRun& run,
                   std::span<const ImageInput> images, PredictionPrinter& printer) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> inputs;
  std::vector<const ImageInput*> readable;
  for (const ImageInput& image : images) try {
      inputs.push_back(image.read());
      readable.push_back(&image);
    } catch (const Error& error) {
      printer.add_unreadable(image.name, error.what());
    }
  if (readable.empty()) return;
  const torch::Tensor activations = run.model->forward(torch::cat(inputs)).activations.cpu();
  check(torch::isfinite(activations).all().item<bool>(),
        "{}: the network's answer is not finite (damaged or diverged weights?)",
        run.weights.string());
  for (size_t i = 0; i < readable.size(); ++i)
    printer.add(*readable[i], best_guesses(run, activations[static_cast<int64_t>(i)], options.top));
}

void run_predict(const PredictCommand& options) {
  LoadedRun run = load_run(options.path, parse_device(options.place.device));
  run.compute_in("float32");
  PredictionPrinter printer(options, run);
  size_t unreadable = 0;
  const std::vector<ImageInput> images =
      list_images(run, options.images, options.place.data,
                  [&](const std::string& file, const std::string& message) {
                    printer.add_unreadable(file, message);
                    ++unreadable;
                  });
  const size_t batch = batch_size(run);
  for (size_t at = 0; at < images.size(); at += batch)
    predict_batch(options, run, std::span(images).subspan(at, std::min(batch, images.size() - at)),
                  printer);
  printer.finish(images.size() + unreadable);
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
  auto* json = command->add_flag("--json", options->json, "One JSON object on stdout");
  command->add_flag("--csv", options->csv, "CSV on stdout, one row for each image")->excludes(json);
  command->footer(fmt::format(
      "Example:\n"
      "  remcaps predict runs/imagenette/eff-conv-capsnet/seed-42 dog.jpg test:0..9 --top 3\n"
      "  remcaps predict zoo:imagenette/eff-conv-capsnet-rem ~/pictures --csv > classes.csv\n\n"
      "{}\n"
      "A file that cannot be read is named on stderr and left out; the exit code is then 1.\n"
      "It computes in float32, whatever precision the run was trained in.",
      kPicturesHelp));
  command->callback([options] { run_predict(*options); });
}

}  // namespace remcaps::cli
