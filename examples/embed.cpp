// A trained network inside a program of your own: load it, classify images, look at the couplings.
//
//   example_embed WEIGHTS.safetensors [IMAGE...]
//
// WEIGHTS is a file `remcaps train` or `remcaps export` wrote; it carries the recipe, the class
// names and the normalisation. IMAGEs are PNG or JPEG files of any size: read_input() stretches
// them to the network's input, whatever their shape, and turns them into grey where the network was
// trained on grey images. Light stays light: for a black digit on paper and an MNIST network, which
// knows white on black, it is read_input(path, /*invert=*/true). Without an IMAGE, a grey one shows
// how pixels of your own become the network's input.
#include <fmt/format.h>

#include "remcaps/base/error.h"
#include "remcaps/data/batches.h"
#include "remcaps/runs/load.h"
#include "remcaps/torch/runtime.h"

int main(int argc, char** argv) try {
  using namespace remcaps;
  if (argc < 2) throw UsageError("usage: example_embed WEIGHTS.safetensors [IMAGE...]");
  const std::string warning = prepare_embedded();
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);

  const LoadedRun run = load_run(argv[1], torch::kCPU);
  const ImageShape input = run.context.input;

  std::vector<std::pair<std::string, torch::Tensor>> images;  // float32 [1, C, H, W] each
  for (int i = 2; i < argc; ++i) images.emplace_back(argv[i], run.read_input(argv[i]));
  if (images.empty()) {
    const torch::Tensor bytes =
        torch::full({1, input.channels, input.height, input.width}, 127, torch::kUInt8);
    images.emplace_back("a grey image", prepare_images(bytes, run.recipe.dataset.augment));
  }

  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  for (const auto& [name, image] : images) {
    const Forward forward = run.model->forward(image, options);
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
