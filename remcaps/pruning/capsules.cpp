#include "remcaps/pruning/capsules.h"

#include "remcaps/base/error.h"

namespace remcaps {

Tensor capsule_groups(const std::vector<CapsuleGrid>& grids, CapsuleGroup group, int64_t children) {
  if (group == CapsuleGroup::kCapsule) return torch::arange(children);
  Tensor of = torch::full({children}, -1, torch::kLong);
  int64_t* values = of.data_ptr<int64_t>();
  int64_t first = 0;
  for (const CapsuleGrid& grid : grids) {
    for (int64_t type = 0; type < grid.types; ++type)
      for (int64_t y = 0; y < grid.height; ++y)
        for (int64_t x = 0; x < grid.width; ++x)
          values[grid.offset + type * grid.stride_type + y * grid.stride_y + x * grid.stride_x] =
              first + (group == CapsuleGroup::kType ? type : y * grid.width + x);
    first += group == CapsuleGroup::kType ? grid.types : grid.height * grid.width;
  }
  if (of.lt(0).any().item<bool>())
    throw UsageError("groups by type or place: the capsules of this network lie on no grid");
  return of;
}

FcCapsImpl& prunable_class_layer(const CapsNet& model) {
  model.require_routing();
  const RoutingLayer last = model.routing_layers().back();
  const auto modules = model.named_modules("", /*include_self=*/false);
  const auto* found = modules.find(last.name);
  auto* layer = found == nullptr ? nullptr : (*found)->as<FcCapsImpl>();
  if (layer == nullptr || layer->options.shared_over() != 1 ||
      layer->options.routing()->name() != "dynamic" || !layer->routing_parameter.defined())
    throw UsageError(fmt::format(
        "{}: whole capsules can be taken out of class layers with dynamic routing, a bias and a "
        "matrix for every child and parent; its class layer is none",
        model.name()));
  return *layer;
}

PrimaryCapsImpl* class_children(const CapsNet& model) {
  if (model.routing_layers().size() != 1) return nullptr;
  const int64_t children = prunable_class_layer(model).options.children();
  for (const auto& module : model.modules(/*include_self=*/false)) {
    auto* primary = module->as<PrimaryCapsImpl>();
    if (primary != nullptr) return children % primary->options.types() == 0 ? primary : nullptr;
  }
  return nullptr;
}

GivenVotesSums::GivenVotesSums(const FcCapsImpl& layer)
    : matrices_(layer.weight.detach().permute({0, 3, 1, 2}).flatten(2)) {
  const FcCapsOptions& options = layer.options;
  sum_ = torch::zeros({options.children(), options.parents(), options.parent_dim()},
                      matrices_.options().dtype(torch::kDouble));
  squares_ = sum_.clone();
}

void GivenVotesSums::add(const Tensor& poses, const Tensor& coupling) {
  const Tensor votes = poses.transpose(0, 1).bmm(matrices_).view(
      {sum_.size(0), poses.size(0), sum_.size(1), sum_.size(2)});
  const Tensor given = votes * coupling.transpose(0, 1).unsqueeze(-1);  // [I, B, J, Dout]
  sum_ += given.sum(1, /*keepdim=*/false, torch::kDouble);
  squares_ += given.square().sum(1, /*keepdim=*/false, torch::kDouble);
  images_ += poses.size(0);
}

GivenVotes GivenVotesSums::result() const {
  const auto images = static_cast<double>(images_);
  const Tensor mean = sum_ / images;
  return {mean, (squares_ / images - mean.square()).clamp_min(0).flatten(1).sum(1)};
}

}  // namespace remcaps
