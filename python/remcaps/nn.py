"""Capsule layers as torch.nn.Modules. Parameters have the names and shapes of the C++ layers."""

import torch

from remcaps import functional
from remcaps._remcaps import UsageError


class PrimaryCaps(torch.nn.Module):
    """A convolution whose output channels are read as capsules.

    [B, in_channels, H, W] -> [B, types * h * w, dim], capsules in order (type, row, column).
    """

    def __init__(self, in_channels, types, kernel, *, dim=8, stride=1, padding=0, groups=1,
                 form="norm", epsilon=1e-6, kernels="fused"):
        super().__init__()
        self.types, self.dim, self.form, self.epsilon = types, dim, form, epsilon
        self.kernels = kernels
        self.conv = torch.nn.Conv2d(in_channels, types * dim, kernel, stride=stride,
                                    padding=padding, groups=groups)

    def forward(self, map):
        return functional.squash_to_capsules(self.conv(map), self.types, self.dim, form=self.form,
                                             epsilon=self.epsilon, kernels=self.kernels)

    def extra_repr(self):
        return f"types={self.types}, dim={self.dim}"


class FcCaps(torch.nn.Module):
    """Fully connected capsules: every child votes for every parent.

    [B, children, child_dim] -> [B, parents, parent_dim]

    routing: "dynamic", "scaled-distance" or "self-attention". Further arguments are those of the
        routing function in remcaps.functional, e.g. ``iterations=2``.
    shared_over: so many children that follow each other share one matrix per parent.
    forward() takes ``trace=True`` to return couplings too, and ``levels=K`` to quantize them.
    """

    def __init__(self, children, parents, child_dim=8, parent_dim=16, *, routing="dynamic",
                 shared_over=1, weight_std=0.1, bias_mean=0.1, **options):
        super().__init__()
        if routing not in _ROUTINGS:
            raise UsageError(f"routing: unknown value {routing}; known: {', '.join(_ROUTINGS)}")
        if shared_over < 1 or children % shared_over != 0:
            raise UsageError(f"FcCaps: {children} children cannot share matrices in groups of "
                             f"{shared_over}")
        self.routing, self.shared_over, self.options = routing, shared_over, options
        self.weight = torch.nn.Parameter(
            torch.randn(children // shared_over, parents, parent_dim, child_dim) * weight_std)
        self.register_parameter("bias", None)
        self.register_parameter("prior", None)
        if routing == "self-attention":
            self.prior = torch.nn.Parameter(torch.zeros(children, parents))
        elif options.get("bias_in") != "none":
            self.bias = torch.nn.Parameter(torch.full((parents, parent_dim), bias_mean))

    def forward(self, children, *, levels=None, trace=False):
        weight = self.weight
        if self.shared_over > 1:
            weight = weight.repeat_interleave(self.shared_over, 0)
        extra = self.prior if self.routing == "self-attention" else self.bias
        return _ROUTINGS[self.routing](children, weight, extra, levels=levels, trace=trace,
                                       **self.options)

    def extra_repr(self):
        matrices, parents, parent_dim, child_dim = self.weight.shape
        return (f"{matrices * self.shared_over} x {child_dim} -> {parents} x {parent_dim}, "
                f"routing={self.routing}")


class ConvCaps(torch.nn.Module):
    """Convolutional capsules: at each place of a map, parents that see the capsules of a window.

    [B, child_types * H * W, child_dim] -> [B, P, parent_types, parent_dim] for P window positions.
    ``ConvCaps.as_children(poses)`` makes children of the next layer of them. Further arguments are
    those of remcaps.functional.conv_caps_routing.
    """

    def __init__(self, child_types, parent_types, kernel, *, stride=1, child_dim=16, parent_dim=16,
                 weight_std=0.1, bias_mean=0.1, **options):
        super().__init__()
        self.child_types, self.kernel, self.stride = child_types, kernel, stride
        self.options = options
        self.weight = torch.nn.Parameter(
            torch.randn(child_types * kernel * kernel, parent_types, parent_dim, child_dim)
            * weight_std)
        self.register_parameter("bias", None)
        if options.get("bias_in") != "none":
            self.bias = torch.nn.Parameter(torch.full((parent_types, parent_dim), bias_mean))

    def forward(self, children, height, width, *, levels=None, trace=False):
        if children.dim() != 3 or children.shape[1] != self.child_types * height * width:
            raise UsageError(f"ConvCaps: input {list(children.shape)}; expected "
                             f"[B, {self.child_types} types x {height}x{width}, "
                             f"{self.weight.shape[3]}]")
        map = children.reshape(children.shape[0], self.child_types, height, width,
                               children.shape[2])
        return functional.conv_caps_routing(map, self.weight, self.bias, kernel=self.kernel,
                                            stride=self.stride, levels=levels, trace=trace,
                                            **self.options)

    @staticmethod
    def as_children(poses):
        """[B, P, J, D] -> [B, J * P, D]"""
        return poses.transpose(1, 2).flatten(1, 2)

    def extra_repr(self):
        places, parents, parent_dim, child_dim = self.weight.shape
        return (f"{self.child_types} x {child_dim} -> {parents} x {parent_dim}, "
                f"kernel={self.kernel}, stride={self.stride}")


_ROUTINGS = {
    "dynamic": functional.dynamic_routing,
    "scaled-distance": functional.scaled_distance_routing,
    "self-attention": functional.self_attention_routing,
}
