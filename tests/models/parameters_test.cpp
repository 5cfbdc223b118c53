// Parameter counts as published (and as the paper quotes them).
#include <gtest/gtest.h>

#include "tests/models/make.h"

namespace remcaps {
namespace {

using testing::images;
using testing::make;

struct Count {
  const char* name;
  const char* network;
  ModelContext context;
  const char* options;
  int64_t trainable;
};

std::ostream& operator<<(std::ostream& out, const Count& count) {
  return out << count.name;
}

class ParameterCount : public ::testing::TestWithParam<Count> {};

TEST_P(ParameterCount, EqualsThePublishedOneAndTheSumOfTheLayersCosts) {
  const Count& count = GetParam();
  const auto model = make(count.network, count.context, count.options);
  EXPECT_EQ(model->trainable_parameters(), count.trainable);
  int64_t sum = 0;
  for (const auto& layer : model->costs()) sum += layer.parameters;
  EXPECT_EQ(sum, model->all_parameters());
}

INSTANTIATE_TEST_SUITE_P(
    Published, ParameterCount,
    ::testing::Values(
        Count{"dr_mnist", "dr-capsnet", images(1, 28, 28), "{}", 6804384},
        Count{"dr_mnist_decoder", "dr-capsnet", images(1, 28, 28), "{decoder: fc}", 8215728},
        Count{"dr_cifar10", "dr-capsnet", images(3, 24, 24), "{primary_types: 64}", 11990688},
        Count{"dr_cifar10_decoder", "dr-capsnet", images(3, 24, 24),
              "{primary_types: 64, decoder: fc}", 11990688 + 2378944},
        Count{"dr_cifar10_32", "dr-capsnet", images(3, 32, 32),
              "{primary_types: 64, conv_kernel: 3, primary_kernel: 3}", 17243808},
        Count{"dr_cifar10_sabour", "dr-capsnet", images(3, 24, 24),
              "{primary_types: 64, padding: same}", 22476448},
        Count{"dr_affnist", "dr-capsnet", images(1, 40, 40), "{}", 11228064},
        Count{"dr_svhn_32_types", "dr-capsnet", images(3, 32, 32), "{}", 7992736},
        Count{"dr_svhn_64_types", "dr-capsnet", images(3, 32, 32), "{primary_types: 64}", 15922848},
        Count{"dr_tiny_imagenet_three_convolutions", "dr-capsnet", images(3, 32, 32, 200),
              "{convs: 3, primary_kernel: 3, primary_stride: 1}", 40764288},
        Count{"gamma_mnist", "gamma-capsnet", images(1, 28, 28), "{}", 7730336},
        Count{"gamma_cifar10", "gamma-capsnet", images(3, 32, 32), "{}", 9606816},
        Count{"deepcaps_mnist", "deepcaps", images(1, 28, 28), "{}", 8433728},
        Count{"deepcaps_cifar10_32", "deepcaps", images(3, 32, 32), "{}", 8436032},
        Count{"deepcaps_cifar10_64", "deepcaps", images(3, 64, 64), "{}", 13351232},
        Count{"deepcaps_original_mnist", "deepcaps", images(1, 28, 28), "{variant: original}",
              8441920},
        Count{"deepcaps_original_cifar10_64", "deepcaps", images(3, 64, 64), "{variant: original}",
              13359424},
        Count{"deepcaps_original_7_22M", "deepcaps", images(3, 32, 32),
              "{variant: original, class_dim: 8}", 7215184},
        Count{"eff_mnist", "eff-capsnet", images(1, 28, 28), "{}", 161824},
        Count{"eff_smallnorb", "eff-capsnet", images(2, 48, 48, 5), "{}", 151664},
        Count{"eff_32_pixels", "eff-capsnet", images(3, 32, 32), "{}", 168544},
        Count{"eff_conv_imagenette", "eff-conv-capsnet", images(3, 128, 128), "{}",
              205568 + 832 + 2560 + 589824 + 40960},
        Count{"eff_conv_imagenette_shared_by_all", "eff-conv-capsnet", images(3, 128, 128),
              "{share: all}", 205568 + 832 + 2560 + 589824 + 2560},
        Count{"eff_conv_dogs_vs_cats", "eff-conv-capsnet", images(3, 128, 128, 2), "{norm: none}",
              205568 + 2560 + 589824 + 8192},
        Count{"multilayer_mnist", "multilayer-dr-capsnet", images(1, 28, 28), "{}",
              130112 + 576 + 10496 + 3 * (16 * 16 * 64 + 128) + 16 * 10 * 64 + 80},
        Count{"resnet18_tiny_imagenet", "resnet18-capsnet", images(3, 224, 224, 200), "{}",
              1256584}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Resnet18CapsNet, FrozenParametersAreCountedApart) {
  const auto model = make("resnet18-capsnet", images(3, 224, 224, 200));
  EXPECT_EQ(model->all_parameters(), 1256584 + 11166912 + 9600);
  const auto trained = make("resnet18-capsnet", images(3, 224, 224, 200), "{freeze: false}");
  EXPECT_EQ(trained->trainable_parameters(), 1256584 + 11166912 + 9600);
}

// Parameters of the layers that pruning counts: the denominators of the published sparsities.
int64_t prunable_parameters(const CapsNet& model) {
  int64_t sum = 0;
  for (const auto& item : model.named_parameters())
    for (const auto& layer : model.prunable_layers())
      if (item.key() == layer || item.key().rfind(layer + ".", 0) == 0) sum += item.value().numel();
  return sum;
}

TEST(PrunableLayers, AreAllButNormsPriorsAndDecoders) {
  EXPECT_EQ(prunable_parameters(*make("dr-capsnet", images(1, 28, 28), "{decoder: fc}")), 6804384);
  EXPECT_EQ(prunable_parameters(*make("gamma-capsnet", images(1, 28, 28))), 7730336);
  EXPECT_EQ(prunable_parameters(*make("deepcaps", images(1, 28, 28))), 8433728 - 256);
  EXPECT_EQ(prunable_parameters(*make("eff-capsnet", images(1, 28, 28))), 161248 - 160);
  EXPECT_EQ(prunable_parameters(*make("eff-conv-capsnet", images(3, 128, 128))),
            205568 + 2560 + 589824 + 40960);
  EXPECT_EQ(prunable_parameters(*make("resnet18-capsnet", images(3, 224, 224, 200))),
            1256584 + 11166912);
}

TEST(Initialisation, OfEachNetworkIsAsPublished) {
  torch::manual_seed(1);
  const auto dr = make("dr-capsnet", images(1, 28, 28))->named_parameters();
  // Fan-in 20,736; the bound itself is drawn, rounded to float.
  EXPECT_LE(dr["primary.conv.weight"].abs().max().item<double>(), 1 / 144.0 + 1e-8);
  EXPECT_LE(dr["conv1.weight"].abs().max().item<double>(), 1 / 9.0 + 1e-7);
  EXPECT_NEAR(dr["class.weight"].std().item<double>(), 0.1, 0.001);
  EXPECT_TRUE((dr["class.bias"] == 0.1f).all().item<bool>());

  const auto deep = make("deepcaps", images(1, 28, 28))->named_parameters();
  EXPECT_NEAR(deep["class.weight"].std().item<double>(), 0.05, 0.001);
  EXPECT_NEAR(deep["class.bias"].std().item<double>(), 0.05, 0.01);
  EXPECT_NEAR(deep["class.bias"].mean().item<double>(), 0.0, 0.01);

  const auto eff = make("eff-capsnet", images(1, 28, 28))->named_parameters();
  EXPECT_NEAR(eff["conv2.weight"].std().item<double>(), std::sqrt(2.0 / 288), 0.001);
  EXPECT_NEAR(eff["class.weight"].std().item<double>(), std::sqrt(2.0 / 1280), 0.001);
  // Keras counts all channels as inputs of a depthwise kernel.
  EXPECT_NEAR(eff["primary.conv.weight"].std().item<double>(), std::sqrt(2.0 / (81 * 129)), 0.0005);
  EXPECT_EQ(eff["class.prior"].abs().max().item<float>(), 0.0f);
  EXPECT_EQ(eff["conv1.bias"].abs().max().item<float>(), 0.0f);

  const auto norb = make("eff-capsnet", images(2, 48, 48, 5))->named_parameters();
  EXPECT_LE(norb["norm1.weight"].abs().max().item<float>(), 0.05f);
}

}  // namespace
}  // namespace remcaps
