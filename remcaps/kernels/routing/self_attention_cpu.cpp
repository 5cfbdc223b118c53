#include "remcaps/kernels/routing/self_attention.h"

#include <cmath>
#include <vector>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/pointwise/maps.h"
#include "remcaps/kernels/routing/softmax.h"

namespace remcaps::kernels::cpu {
namespace {

// u^_ij = W_ij u_i of one image, [I, J, D_out].
void vote(const RoutingShape& shape, const float* children, const float* weight, float* votes) {
  for (int64_t i = 0; i < shape.children; ++i, children += shape.child_dim)
    for (int64_t row = 0; row < shape.pose_size(); ++row, weight += shape.child_dim) {
      float sum = 0;
      for (int64_t d = 0; d < shape.child_dim; ++d) sum += weight[d] * children[d];
      *votes++ = sum;
    }
}

}  // namespace

void self_attention_forward(const RoutingShape& shape, const AttentionRule& rule,
                            const float* children, const float* weight, const float* prior,
                            float* poses, float* couplings) {
  const int64_t size = shape.pose_size(), dim = shape.parent_dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  parallel_for(0, shape.batch, /*grain=*/1, [&](int64_t begin, int64_t end) {
    std::vector<float> votes(static_cast<size_t>(shape.children * size)), row(shape.parents);
    for (int64_t image = begin; image < end; ++image) {
      vote(shape, children + image * shape.children * shape.child_dim, weight, votes.data());
      std::vector<float> total(static_cast<size_t>(size), 0.0F);
      for (int64_t i = 0; i < shape.children; ++i)
        for (int64_t k = 0; k < size; ++k) total[k] += votes[i * size + k];
      float* pose = poses + image * size;
      std::fill_n(pose, size, 0.0F);
      for (int64_t i = 0; i < shape.children; ++i) {
        const float* of_child = votes.data() + i * size;
        const float* other = rule.self ? of_child : total.data();
        for (int64_t j = 0; j < shape.parents; ++j) {
          float agreement = 0;
          for (int64_t k = j * dim; k < (j + 1) * dim; ++k) agreement += of_child[k] * other[k];
          row[j] = agreement * scale;
        }
        softmax(row.data(), shape.parents);
        for (int64_t j = 0; j < shape.parents; ++j) {
          const float added = prior[i * shape.parents + j];
          float coupling = rule.exact_prior ? row[j] : row[j] + added;
          if (rule.levels.count > 0)
            coupling = rounded(rule.levels, std::clamp(coupling, 0.0F, 1.0F));
          if (couplings != nullptr)
            couplings[(image * shape.children + i) * shape.parents + j] = coupling;
          if (rule.exact_prior) coupling += added;
          for (int64_t k = j * dim; k < (j + 1) * dim; ++k) pose[k] += coupling * of_child[k];
        }
      }
      squash_capsules(rule.form, rule.epsilon, shape.parents, dim, pose);
    }
  });
}

}  // namespace remcaps::kernels::cpu
