#include "remcaps/capsule/decoder.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/batch_norm.h"

namespace remcaps {
namespace {

// One number for all channels or one each -> [C, 1, 1].
Tensor per_channel(const char* what, const std::vector<double>& values, int64_t channels) {
  const auto count = static_cast<int64_t>(values.size());
  check(count == 1 || count == channels, "decoder: {} has {} numbers; expected 1 or {}", what,
        count, channels);
  return torch::tensor(values, torch::kFloat64)
      .to(torch::kFloat32)
      .view({count, 1, 1})
      .expand({channels, 1, 1})
      .clone();
}

}  // namespace

Decoder::Decoder(const DecoderShape& shape_) : shape(shape_) {
  mean_ = register_buffer("mean", per_channel("mean", shape.mean, shape.channels));
  std_ = register_buffer("std", per_channel("std", shape.std, shape.channels));
}

Tensor Decoder::forward(const Tensor& masked_poses) {
  check(masked_poses.dim() == 3 && masked_poses.size(1) == shape.classes &&
            masked_poses.size(2) == shape.class_dim,
        "decoder: poses [{}]; expected [B, {}, {}]", fmt::join(masked_poses.sizes(), ", "),
        shape.classes, shape.class_dim);
  const Tensor image =
      pixels(masked_poses)
          .reshape({masked_poses.size(0), shape.channels, shape.height, shape.width});
  return (image - mean_) / std_;
}

FcDecoder::FcDecoder(const DecoderShape& shape_, std::vector<int64_t> hidden) : Decoder(shape_) {
  int64_t inputs = shape.classes * shape.class_dim;
  hidden.push_back(shape.channels * shape.height * shape.width);
  for (const int64_t outputs : hidden) {
    layers_.push_back(register_module(fmt::format("fc{}", layers_.size() + 1),
                                      torch::nn::Linear(inputs, outputs)));
    multiply_adds_ += inputs * outputs;
    activation_floats_ += outputs;
    inputs = outputs;
  }
}

std::string FcDecoder::kind() const {
  std::string sizes = fmt::format("{}", shape.classes * shape.class_dim);
  for (const auto& layer : layers_) sizes += fmt::format("-{}", layer->options.out_features());
  return "FC " + sizes;
}

Tensor FcDecoder::pixels(const Tensor& masked_poses) {
  Tensor x = masked_poses.flatten(1);
  for (size_t i = 0; i + 1 < layers_.size(); ++i) x = torch::relu(layers_[i]->forward(x));
  return torch::sigmoid(layers_.back()->forward(x));
}

ConvDecoder::ConvDecoder(const DecoderShape& shape_)
    : Decoder(shape_), base_height_(shape.height), base_width_(shape.width) {
  int64_t doublings = 0;
  for (; base_height_ > 8 || base_width_ > 8; ++doublings) {
    base_height_ = (base_height_ + 1) / 2;
    base_width_ = (base_width_ + 1) / 2;
  }
  fc_ = register_module("fc", torch::nn::Linear(shape.class_dim, 16 * base_height_ * base_width_));
  // Keras' momentum 0.8 is torch's 0.2.
  norm_ = register_module("norm",
                          torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(16).momentum(0.2)));

  multiply_adds_ = 16 * shape.class_dim * base_height_ * base_width_;
  activation_floats_ = 2 * 16 * base_height_ * base_width_;
  int64_t channels = 16, positions = base_height_ * base_width_;
  auto add = [&](int64_t outputs, int64_t stride) {
    deconvs_.push_back(register_module(
        fmt::format("deconv{}", deconvs_.size() + 1),
        torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(channels, outputs, 3)
                                       .stride(stride)
                                       .padding(1)
                                       .output_padding(stride - 1))));
    // A transposed convolution multiplies each place of its input by its whole kernel.
    multiply_adds_ += 9 * channels * outputs * positions;
    positions *= stride * stride;
    activation_floats_ += outputs * positions;
    channels = outputs;
  };
  add(64, 1);
  for (int64_t i = 0; i < doublings; ++i) add(std::max<int64_t>(8, 32 >> i), 2);
  add(shape.channels, 1);
}

std::string ConvDecoder::kind() const {
  return fmt::format("FC + {} transposed Conv2d 3x3 from {}x{}", deconvs_.size(), base_height_,
                     base_width_);
}

Tensor ConvDecoder::pixels(const Tensor& masked_poses) {
  const Tensor pose = masked_poses.sum(1);  // the one that is not zero, [B, D]
  Tensor x = torch::relu(fc_->forward(pose)).view({-1, 16, base_height_, base_width_});
  x = batch_norm(*norm_, x);
  for (auto& deconv : deconvs_) x = deconv->forward(x);
  return torch::relu(x.narrow(2, 0, shape.height).narrow(3, 0, shape.width));
}

Tensor mask_poses(const Tensor& poses, const Tensor& classes) {
  const Tensor chosen = classes.unsqueeze(1) == torch::arange(poses.size(1), classes.options());
  return poses * chosen.unsqueeze(2).to(poses.scalar_type());
}

}  // namespace remcaps
