#include "remcaps/explain/perturb.h"

#include "remcaps/base/error.h"

namespace remcaps {

std::vector<double> perturbation_offsets(double range, int64_t count) {
  check(count >= 2, "{} perturbation steps; expected at least 2", count);
  std::vector<double> offsets;
  for (int64_t step = 0; step < count; ++step)
    offsets.push_back(range * static_cast<double>(2 * step - (count - 1)) /
                      static_cast<double>(count - 1));
  return offsets;
}

Tensor perturb(CapsNet& model, const Tensor& pose, int64_t class_index,
               const std::vector<double>& offsets) {
  check(model.has_decoder(),
        "{}: it was trained without a decoder, so poses cannot be turned into images",
        model.name());
  const torch::NoGradGuard no_grad;
  const int64_t dims = pose.size(0), steps = static_cast<int64_t>(offsets.size());
  const Tensor offset = torch::tensor(offsets, torch::kDouble).to(pose.options());
  // Row (d, s) is the pose with offset s added to dimension d: [D, S, D].
  const Tensor moved = pose.view({1, 1, dims}) +
                       torch::eye(dims, pose.options()).unsqueeze(1) * offset.view({1, steps, 1});
  Tensor masked = torch::zeros({dims * steps, model.classes(), dims}, pose.options());
  masked.select(1, class_index).copy_(moved.view({dims * steps, dims}));
  const Tensor images = model.decode(masked);
  return images.view({dims, steps, images.size(1), images.size(2), images.size(3)});
}

}  // namespace remcaps
