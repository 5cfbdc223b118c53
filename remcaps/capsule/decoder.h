// Decoders: an image back from the pose of one class capsule.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

/// What a decoder is built for.
struct DecoderShape {
  int64_t classes = 10, class_dim = 16;
  int64_t channels = 1, height = 28, width = 28;
  /// Normalisation of the images, one number or one per channel: the output is (pixels - mean) /
  /// std, to be compared with the normalised image.
  std::vector<double> mean = {0.0}, std = {1.0};
};

/// Poses [B, J, D] of which all but one capsule are zero -> images [B, C, H, W] in normalised
/// space.
class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const DecoderShape& shape);
  Tensor forward(const Tensor& masked_poses);

  virtual std::string kind() const = 0;                     ///< "FC 160-512-1024-784"
  int64_t multiply_adds() const { return multiply_adds_; }  ///< for one image
  /// Floats kept for backward, one image.
  int64_t activation_floats() const { return activation_floats_; }

  const DecoderShape shape;

 protected:
  int64_t multiply_adds_ = 0, activation_floats_ = 0;

  /// Pixels in 0..1 (or any shape of the same size).
  virtual Tensor pixels(const Tensor& masked_poses) = 0;

 private:
  Tensor mean_, std_;  // [C, 1, 1], buffers: they move with the module
};

/// DR-CapsNet's: J·D -> hidden, ReLU -> ... -> C·H·W, sigmoid. Parameters: fc1, fc2, ...
class FcDecoder : public Decoder {
 public:
  explicit FcDecoder(const DecoderShape& shape, std::vector<int64_t> hidden = {512, 1024});
  std::string kind() const override;

 protected:
  Tensor pixels(const Tensor& masked_poses) override;

 private:
  std::vector<torch::nn::Linear> layers_;
};

/// DeepCaps' class-independent one: the one capsule's D numbers (whichever class it is) -> a small
/// map of 16 channels (ReLU, batch norm) -> 3x3 transposed convolutions: 64 channels, then one of
/// stride 2 per doubling with 32, 16, 8, ... channels, then C; ReLU. The small map is the image
/// halved until both sides are at most 8 (28: 7x7, 64: 8x8); what exceeds the image is cut off.
/// Parameters: fc, norm, deconv1, deconv2, ...
class ConvDecoder : public Decoder {
 public:
  explicit ConvDecoder(const DecoderShape& shape);
  std::string kind() const override;

 protected:
  Tensor pixels(const Tensor& masked_poses) override;

 private:
  int64_t base_height_, base_width_;
  torch::nn::Linear fc_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
  std::vector<torch::nn::ConvTranspose2d> deconvs_;
};

/// Poses with every capsule but the one of `classes` (int64 [B]) set to zero.
Tensor mask_poses(const Tensor& poses, const Tensor& classes);

}  // namespace remcaps
