// A trained network inside a program of your own: load it, classify images, look at the couplings.
//
//   example_embed WEIGHTS.safetensors [IMAGE...]
//
// WEIGHTS is a file `remcaps train` wrote (best.safetensors, last.safetensors); it carries the
// recipe, the class names and the normalisation. Without images, a grey one shows how it is done.
#include <fmt/format.h>

#include "remcaps/base/error.h"
#include "remcaps/base/runtime.h"
#include "remcaps/data/batches.h"
#include "remcaps/data/image_file.h"
#include "remcaps/training/load.h"

int main(int argc, char** argv) try {
  using namespace remcaps;
  if (argc < 2) throw UsageError("usage: example_embed WEIGHTS.safetensors [IMAGE...]");
  const std::string warning = prepare_embedded();
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);

  const LoadedRun run = load_run(argv[1], torch::kCPU);
  const ImageShape input = run.context.input;

  std::vector<std::pair<std::string, torch::Tensor>> images;  // uint8 [C, H, W] each
  for (int i = 2; i < argc; ++i) images.emplace_back(argv[i], read_image(argv[i], input.channels));
  if (images.empty())
    images.emplace_back("a grey image", torch::full({input.channels, input.height, input.width},
                                                    127, torch::kUInt8));

  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  for (const auto& [name, bytes] : images) {
    const torch::Tensor batch = prepare_images(bytes.unsqueeze(0), run.recipe.dataset.augment);
    const Forward forward = run.model->forward(batch, options);
    const int64_t predicted = forward.activations.argmax(1).item<int64_t>();
    const torch::Tensor coupling = forward.routings.back().coupling;  // [1, I, J]
    const auto strongest = coupling[0].select(1, predicted).max(/*dim=*/0);
    fmt::print("{}: predicted {} with length {:.3f}; capsule {} couples to it most ({:.2f})\n",
               name, run.class_names.at(static_cast<size_t>(predicted)),
               forward.activations[0][predicted].item<double>(),
               std::get<1>(strongest).item<int64_t>(), std::get<0>(strongest).item<double>());
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "example_embed: {}\n", error.what());
  return 1;
}
