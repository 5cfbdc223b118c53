#include "remcaps/models/resnet18_classifier.h"

#include "remcaps/base/error.h"

namespace remcaps {

Resnet18Classifier::Resnet18Classifier(const ModelContext& context)
    : CapsNet("resnet18", context.input, context.classes) {
  NetworkPlan plan(name(), context.input);
  backbone_ =
      register_module("backbone", ResNet18(plan, "backbone", /*trained=*/true, context.kernels));
  for (const auto& item : backbone_->named_parameters())
    if (item.value().dim() == 4) prunable_.push_back("backbone." + item.key());
  const int64_t features = plan.map().channels;
  fc_ = register_module("fc", torch::nn::Linear(features, classes()));
  prunable_.emplace_back("fc");
  costs_ = plan.rows();
  costs_.push_back({.name = "fc",
                    .kind = "mean, linear, softmax",
                    .output = {classes()},
                    .parameters = (features + 1) * classes(),
                    .multiply_adds = features * classes(),
                    .activation_floats = features + classes()});
}

Forward Resnet18Classifier::forward(const Tensor& images, const ForwardOptions&) {
  check(images.dim() == 4 && images.size(1) == input().channels &&
            images.size(2) == input().height && images.size(3) == input().width,
        "{}: images [{}]; expected [B, {}, {}, {}]", name(), fmt::join(images.sizes(), ", "),
        input().channels, input().height, input().width);
  const Tensor features = backbone_->forward(images).mean({2, 3});  // [B, 512]
  Forward forward;
  forward.activations = torch::softmax(fc_->forward(features).to(torch::kFloat32), 1);  // [B, J]
  forward.poses = forward.activations.unsqueeze(2);
  return forward;
}

}  // namespace remcaps
