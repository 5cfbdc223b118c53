// A capsule network of your own, trained with REM on real images.
//
//   example_own_network                       trains on 1,024 images of Fashion-MNIST, a few seconds
//   example_own_network eval runs/own/seed-42   any command of `remcaps`, for your own network
//
// The network says how images become child capsules. Routing, traces, pruning, quantization, parse
// trees and entropy are the library's. On a CPU the training ends with
//   accuracy 69.4 %, quantized 69.3 %, entropy 0.33 bits, sparsity 12.2 %
#include <remcaps/remcaps.h>

#include <cstdio>

using namespace remcaps;

/// One convolution, primary capsules on a grid, class capsules: a small DR-CapsNet.
class TinyCapsNet : public StackedCapsNet {
 public:
  explicit TinyCapsNet(const ModelContext& context) : StackedCapsNet("tiny-capsnet", context) {
    conv_ = add_conv("conv", {.channels = 16, .kernel = 9}, "ReLU");
    primary_ =
        add_primary("primary", PrimaryCapsOptions(16, kTypes, /*kernel=*/9).dim(4).stride(2));
    const int64_t children = kTypes * feature_map().height * feature_map().width;
    add_capsules("class", FcCapsOptions(children, context.classes)
                              .child_dim(4)
                              .parent_dim(8)
                              .routing(DynamicRouting{.iterations = 3}));
    finish({});
  }

 protected:
  // images [B, C, H, W] -> child capsules [B, I, 4]
  Tensor children(const Tensor& images, RoutingRecorder&) override {
    return primary_->forward(convolve_relu(*conv_, images, context().kernels));
  }

 private:
  static constexpr int64_t kTypes = 8;
  Convolution conv_{nullptr};
  PrimaryCaps primary_{nullptr};
};

int main(int argc, char** argv) try {
  register_network("tiny-capsnet", [](const ModelContext& context, ConfigSection&) {
    return std::make_shared<TinyCapsNet>(context);
  });
  if (argc > 1) return run_program(argc, argv);

  Recipe recipe;
  recipe.name = "own/tiny-capsnet-rem";
  recipe.model = "tiny-capsnet";
  recipe.dataset.name = "fashion-mnist";
  recipe.dataset.augment = default_augment(recipe.dataset.name);
  recipe.dataset.limit_train = 1024;
  recipe.dataset.limit_test = 1000;
  recipe.dataset.validation = 512;  // the threshold search makes many passes over them
  recipe.train.epochs = 4;
  recipe.train.batch = 64;
  recipe.train.lr = 2e-3;
  // The published strategy, with a stronger regulariser because the run is short.
  recipe.pruning = pruning_section("lobster", LobsterOptions{.lambda = 1e-3});

  const TrainingResult result = train(recipe, {.out = "runs/own"});
  std::printf("accuracy %.1f %%, quantized %.1f %%, entropy %.2f bits, sparsity %.1f %%\n",
              result.accuracy * 100, result.accuracy_quantized * 100, result.entropy,
              result.sparsity * 100);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "example_own_network: %s\n", error.what());
  return 1;
}
