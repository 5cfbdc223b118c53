// Shape arithmetic: follows one image through a network's layers before they are built.
#pragma once

#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/models/model.h"

namespace remcaps {

struct Conv2dCapsOptions;
struct Conv3dCapsOptions;
struct ConvCapsOptions;

/// While it exists, this thread refuses to make a network with more than twice the weights that
/// `source` holds, before it takes memory for them: the recipe in a file may promise any size. (If
/// the file only lacks a tensor, load_weights() names it.)
class WeightLimit {
 public:
  WeightLimit(std::string source, int64_t most);
  ~WeightLimit();
  WeightLimit(const WeightLimit&) = delete;
  WeightLimit& operator=(const WeightLimit&) = delete;

  /// Error if `layer` brings the network's weights above the limit, if there is one.
  static void take(const std::string& network, const std::string& layer, int64_t weights);

 private:
  std::string source_;
  int64_t most_, left_;
};

/// Collects the costs that `remcaps describe` prints, and refuses kernels that do not fit:
///   dr-capsnet: primary kernel 9x9 does not fit the 7x7 map of conv1 (input 15x15)
class NetworkPlan {
 public:
  NetworkPlan(std::string network, ImageShape input);

  const FeatureMap& map() const { return map_; }
  /// Continues from an earlier map (for branches).
  void continue_from(const FeatureMap& map) { map_ = map; }

  /// A convolution, followed by what `then` names ("ReLU"). `kept` is how many maps of the output's
  /// size are kept for backward (0 for a layer that is not trained).
  torch::nn::Conv2dOptions conv(const std::string& layer, const ConvShape& shape,
                                const std::string& then = "", int64_t kept = 1);
  /// Zero padding and pooling have no parameters and no row.
  void pad(int64_t margin);
  void pool(const std::string& layer, int64_t kernel, int64_t stride, int64_t padding);
  /// Adds parameters, e.g. those of a norm, to the last row.
  void add_parameters(int64_t parameters) { rows_.back().parameters += parameters; }

  void primary_caps(const std::string& layer, const PrimaryCapsOptions& options);
  void conv2d_caps(const std::string& layer, const Conv2dCapsOptions& options);
  void conv3d_caps(const std::string& layer, const Conv3dCapsOptions& options);
  /// Routes the capsules of the current map; the map becomes that of the parents.
  void conv_caps(const std::string& layer, const ConvCapsOptions& options);
  void fc_caps(const std::string& layer, const FcCapsOptions& options);
  void decoder(const Decoder& decoder);

  const std::vector<LayerCost>& rows() const { return rows_; }

 private:
  void add(LayerCost row);
  void advance(const std::string& layer, const char* what, torch::ExpandingArray<2> kernel,
               torch::ExpandingArray<2> stride, torch::ExpandingArray<2> padding);

  std::string network_;
  ImageShape input_;
  FeatureMap map_;
  std::vector<LayerCost> rows_;
};

}  // namespace remcaps
