// Decoders: they reconstruct the image from the pose of one class capsule.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

/// The inputs and outputs of a decoder.
struct DecoderShape {
  int64_t classes = 10, class_dim = 16;
  int64_t channels = 1, height = 28, width = 28;
  /// Normalisation of the images, one number or one per channel. The decoder returns
  /// (pixels - mean) / std, so that its output is compared with the normalised image.
  std::vector<double> mean = {0.0}, std = {1.0};
};

/// Poses [B, J, D] in which all capsules but one are zero -> normalised images [B, C, H, W].
class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const DecoderShape& shape);
  Tensor forward(const Tensor& masked_poses);

  virtual std::string kind() const = 0;                     ///< "FC 160-512-1024-784"
  int64_t multiply_adds() const { return multiply_adds_; }  ///< for one image
  /// Floats kept for backward, for one image.
  int64_t activation_floats() const { return activation_floats_; }

  const DecoderShape shape;

 protected:
  int64_t multiply_adds_ = 0, activation_floats_ = 0;

  /// Pixels of 0 to 1, in any shape with the right number of elements.
  virtual Tensor pixels(const Tensor& masked_poses) = 0;

 private:
  Tensor mean_, std_;  // [C, 1, 1]; buffers, so that they move with the module
};

/// DR-CapsNet's decoder: J·D -> hidden, ReLU -> ... -> C·H·W, sigmoid. Parameters: fc1, fc2, ...
class FcDecoder : public Decoder {
 public:
  explicit FcDecoder(const DecoderShape& shape, std::vector<int64_t> hidden = {512, 1024});
  std::string kind() const override;

 protected:
  Tensor pixels(const Tensor& masked_poses) override;

 private:
  std::vector<torch::nn::Linear> layers_;
};

/// DeepCaps' decoder. It gets the D numbers of the capsule but not its class.
///   fc                   a small map of 16 channels, ReLU
///   norm                 batch norm
///   deconv1              3x3 transposed convolution to 64 channels
///   deconv2, ...         one of stride 2 per doubling, to 32, 16, 8, 8, ... channels
///   the last deconv      to C channels, ReLU
/// The small map is the image halved until both sides are at most 8 (28: 7x7, 64: 8x8). What is
/// larger than the image at the end is cut off.
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

/// The poses with all capsules set to zero except that of the image's class (int64 [B]).
Tensor mask_poses(const Tensor& poses, const Tensor& classes);

}  // namespace remcaps
