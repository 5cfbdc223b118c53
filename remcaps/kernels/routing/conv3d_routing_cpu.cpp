#include "remcaps/kernels/routing/conv3d_routing.h"

#include <vector>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/formulas.h"
#include "remcaps/kernels/routing/softmax.h"

namespace remcaps::kernels::cpu {
namespace {

// Routes one image.
class MapRouting {
 public:
  MapRouting(const Conv3dShape& shape, const Conv3dRule& rule)
      : shape_(shape),
        rule_(rule),
        places_(shape.places()),
        size_(shape.parents * shape.parent_dim),
        votes_(static_cast<size_t>(places_ * shape.types * size_)),
        logits_(static_cast<size_t>(shape.types * places_ * shape.parents)),
        couplings_(logits_.size()),
        poses_(static_cast<size_t>(places_ * size_)) {}

  // The kernels' outputs for every place and type. `kernel` is [depth * 9, J * D_out].
  void vote(const MapStrides& strides, const float* image, const float* kernel,
            const float* vote_bias) {
    for (int64_t place = 0; place < places_; ++place)
      for (int64_t type = 0; type < shape_.types; ++type) {
        float* to = vote_of(place, type);
        for (int64_t k = 0; k < size_; ++k) to[k] = vote_bias != nullptr ? vote_bias[k] : 0.0F;
        for (int64_t d = 0; d < shape_.depth; ++d)
          for (int64_t tap = 0; tap < 9; ++tap) {
            const int64_t y = place / shape_.width + tap / 3 - 1;
            const int64_t x = place % shape_.width + tap % 3 - 1;
            if (y < 0 || x < 0 || y >= shape_.height || x >= shape_.width) continue;
            const float value = image[(type * shape_.child_dim + d) * strides.channel +
                                      y * strides.row + x * strides.pixel];
            const float* row = kernel + (d * 9 + tap) * size_;
            for (int64_t k = 0; k < size_; ++k) to[k] += value * row[k];
          }
      }
  }

  void route(const float* bias) {
    std::fill(logits_.begin(), logits_.end(), 0.0F);
    for (int64_t iteration = 1;; ++iteration) {
      const bool last = iteration == rule_.iterations;
      couple(last);
      sum_votes(bias);
      squash();
      if (last) return;
      for_each_pair([&](float& logit, float&, const float* vote, float* pose) {
        for (int64_t d = 0; d < shape_.parent_dim; ++d) logit += vote[d] * pose[d];
      });
    }
  }

  void give_poses(float* to) const {  // [J * D_out, P]
    for (int64_t k = 0; k < size_; ++k)
      for (int64_t place = 0; place < places_; ++place) *to++ = poses_[place * size_ + k];
  }
  void give_couplings(float* to) const {  // [P, T, J]
    for (int64_t place = 0; place < places_; ++place)
      for (int64_t type = 0; type < shape_.types; ++type)
        to = std::copy_n(couplings_.begin() + (type * places_ + place) * shape_.parents,
                         shape_.parents, to);
  }

 private:
  float* vote_of(int64_t place, int64_t type) {
    return votes_.data() + (place * shape_.types + type) * size_;
  }

  // work(logit, coupling, vote, pose) for every place, child type and parent type.
  template <typename Work>
  void for_each_pair(const Work& work) {
    for (int64_t place = 0; place < places_; ++place)
      for (int64_t type = 0; type < shape_.types; ++type)
        for (int64_t j = 0; j < shape_.parents; ++j) {
          const int64_t pair = (type * places_ + place) * shape_.parents + j;
          const int64_t at = j * shape_.parent_dim;
          work(logits_[pair], couplings_[pair], vote_of(place, type) + at,
               poses_.data() + place * size_ + at);
        }
  }

  void couple(bool last) {
    couplings_ = logits_;
    const int64_t row = places_ * shape_.parents;
    for (int64_t type = 0; type < shape_.types; ++type)
      softmax(couplings_.data() + type * row, row);
    if (last && rule_.levels.count > 0)
      for (float& coupling : couplings_) coupling = rounded(rule_.levels, coupling);
  }

  void sum_votes(const float* bias) {
    for (int64_t k = 0; k < places_ * size_; ++k)
      poses_[k] = bias != nullptr ? bias[k % size_] : 0.0F;
    for_each_pair([&](float&, float& coupling, const float* vote, float* pose) {
      for (int64_t d = 0; d < shape_.parent_dim; ++d) pose[d] += coupling * vote[d];
    });
  }

  void squash() {
    const int64_t together = rule_.squash_map ? places_ : 1, dim = shape_.parent_dim;
    for (int64_t first = 0; first < places_; first += together)
      for (int64_t j = 0; j < shape_.parents; ++j) {
        const auto for_each = [&](const auto& work) {
          for (int64_t place = first; place < first + together; ++place)
            for (int64_t d = 0; d < dim; ++d) work(poses_[place * size_ + j * dim + d]);
        };
        float n2 = 0;
        for_each([&](float& x) { n2 += x * x; });
        const float factor = squash_factor(n2, rule_.epsilon);
        for_each([&](float& x) { x *= factor; });
      }
  }

  const Conv3dShape shape_;
  const Conv3dRule rule_;
  int64_t places_, size_;         // P, J * D_out
  std::vector<float> votes_;      // [P, T, J, D_out]
  std::vector<float> logits_;     // [T, P, J]
  std::vector<float> couplings_;  // [T, P, J]
  std::vector<float> poses_;      // [P, J, D_out]
};

}  // namespace

void conv3d_routing_forward(const Conv3dShape& shape, const Conv3dRule& rule,
                            const MapStrides& strides, const float* children, const float* weight,
                            const float* vote_bias, const float* bias, float* poses,
                            float* couplings) {
  const int64_t size = shape.parents * shape.parent_dim, places = shape.places();
  std::vector<float> kernel(static_cast<size_t>(size * shape.seen()));
  for (int64_t k = 0; k < size; ++k)
    for (int64_t s = 0; s < shape.seen(); ++s) kernel[s * size + k] = weight[k * shape.seen() + s];
  parallel_for(0, shape.batch, /*grain=*/1, [&](int64_t begin, int64_t end) {
    MapRouting routing(shape, rule);
    for (int64_t image = begin; image < end; ++image) {
      routing.vote(strides, children + image * strides.image, kernel.data(), vote_bias);
      routing.route(bias);
      routing.give_poses(poses + image * size * places);
      if (couplings != nullptr)
        routing.give_couplings(couplings + image * places * shape.types * shape.parents);
    }
  });
}

}  // namespace remcaps::kernels::cpu
