"""Capsule layers as torch.nn.Modules. Parameters have the names and shapes of the C++ layers.

Shapes: B images; I children of Din numbers; J parents of Dout numbers.
"""

import inspect

import torch

from remcaps import functional
from remcaps._remcaps import UsageError


class Conv2d(torch.nn.Conv2d):
    """torch.nn.Conv2d, faster on a CPU: the same arguments, state and results.

    functional.conv2d says which sizes have a kernel. kernels="reference": PyTorch's convolution.
    """

    def __init__(self, *arguments, kernels="fused", **options):
        super().__init__(*arguments, **options)
        self.kernels = kernels

    def forward(self, input):
        if self.padding_mode != "zeros":
            return super().forward(input)
        return functional.conv2d(input, self.weight, self.bias, self.stride, self.padding,
                                 self.dilation, self.groups, kernels=self.kernels)


class PrimaryCaps(torch.nn.Module):
    """A convolution whose output channels are read as capsules.

    [B, in_channels, H, W] -> [B, types * h * w, dim], capsules in order (type, row, column).

    types, dim: capsules at each place of the map, and the numbers of each.
    kernel, stride, padding, groups: of the convolution.
    form, epsilon: of functional.squash().
    """

    def __init__(self, in_channels, types, kernel, *, dim=8, stride=1, padding=0, groups=1,
                 form="norm", epsilon=1e-6, kernels="fused", device=None, dtype=None):
        super().__init__()
        self.types, self.dim, self.form, self.epsilon = types, dim, form, epsilon
        self.conv = Conv2d(in_channels, types * dim, kernel, stride=stride, padding=padding,
                           groups=groups, kernels=kernels, device=device, dtype=dtype)

    def forward(self, map):
        return functional.squash_to_capsules(self.conv(map), self.types, self.dim, form=self.form,
                                             epsilon=self.epsilon,
                                             kernels=self.conv.kernels)

    def extra_repr(self):
        return f"types={self.types}, dim={self.dim}"


class _Routed(torch.nn.Module):
    """A layer whose children vote for parents: `weight` and a bias or a prior."""

    def __init__(self, function, weight_shape, extra, extra_shape, weight_std, bias_mean, options,
                 device, dtype):
        super().__init__()
        # A wrong option is an error here, not in the first forward pass.
        known = [name for name, parameter in inspect.signature(function).parameters.items()
                 if parameter.kind is parameter.KEYWORD_ONLY and name not in ("levels", "trace")]
        for name in options:
            if name not in known:
                raise TypeError(f"{type(self).__name__}: unknown argument {name}; known: "
                                f"{', '.join(known)}")
        self.weight_std, self.bias_mean, self.options = weight_std, bias_mean, options
        self.weight = torch.nn.Parameter(torch.empty(weight_shape, device=device, dtype=dtype))
        for name in ("bias", "prior"):
            self.register_parameter(name, None)
        if options.get("bias_in") != "none":
            setattr(self, extra, torch.nn.Parameter(
                torch.empty(extra_shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws new weights; the bias becomes `bias_mean`, a prior 0."""
        torch.nn.init.normal_(self.weight, std=self.weight_std)
        if self.bias is not None:
            torch.nn.init.constant_(self.bias, self.bias_mean)
        if self.prior is not None:
            torch.nn.init.zeros_(self.prior)

    def _options_repr(self):
        return "".join(f", {name}={value!r}" for name, value in self.options.items())


class FcCaps(_Routed):
    """Fully connected capsules: every child votes for every parent.

    [B, children, child_dim] -> [B, parents, parent_dim]

    routing: "dynamic", "scaled-distance" or "self-attention". Further arguments are those of the
        routing function in remcaps.functional, e.g. ``iterations=2``.
    shared_over: so many children that follow each other share one matrix per parent.
    weight_std, bias_mean: of the parameters at the start.

    Parameters: weight [I / shared_over, J, Dout, Din]; bias [J, Dout], or prior [I, J] of
    self-attention routing. ``layer(children, trace=True)`` returns (poses, couplings [B, I, J]);
    ``levels=K`` quantizes the couplings.
    """

    def __init__(self, children, parents, child_dim=8, parent_dim=16, *, routing="dynamic",
                 shared_over=1, weight_std=0.1, bias_mean=0.1, device=None, dtype=None, **options):
        if routing not in _ROUTINGS:
            raise UsageError(f"routing: unknown value {routing}; known: {', '.join(_ROUTINGS)}")
        if shared_over < 1 or children % shared_over != 0:
            raise UsageError(f"FcCaps: {children} children cannot share matrices in groups of "
                             f"{shared_over}")
        extra, shape = (("prior", (children, parents)) if routing == "self-attention" else
                        ("bias", (parents, parent_dim)))
        super().__init__(_ROUTINGS[routing],
                         (children // shared_over, parents, parent_dim, child_dim), extra, shape,
                         weight_std, bias_mean, options, device, dtype)
        self.routing, self.shared_over = routing, shared_over

    def forward(self, children, *, levels=None, trace=False):
        weight = self.weight
        if self.shared_over > 1:
            weight = weight.repeat_interleave(self.shared_over, 0)
        extra = self.prior if self.routing == "self-attention" else self.bias
        return _ROUTINGS[self.routing](children, weight, extra, levels=levels, trace=trace,
                                       **self.options)

    def extra_repr(self):
        matrices, parents, parent_dim, child_dim = self.weight.shape
        shared = f", shared_over={self.shared_over}" if self.shared_over > 1 else ""
        return (f"{matrices * self.shared_over} x {child_dim} -> {parents} x {parent_dim}, "
                f"routing={self.routing!r}{shared}{self._options_repr()}")


class ConvCaps(_Routed):
    """Convolutional capsules: at each place of a map, parents that see the capsules of a window.

    [B, child_types * H * W, child_dim] -> [B, P, parent_types, parent_dim] for P window positions.

    kernel, stride: of the window, in capsules. Further arguments are those of
        remcaps.functional.conv_caps_routing.
    weight_std, bias_mean: of the parameters at the start.

    ``layer(children, H, W)`` takes the size of the map; ``trace=True`` and ``levels=K`` are those
    of FcCaps, couplings are [B, P, child_types * kernel * kernel, parent_types].
    ``ConvCaps.as_children(poses)`` makes children of the next layer of the poses.
    """

    def __init__(self, child_types, parent_types, kernel, *, stride=1, child_dim=16, parent_dim=16,
                 weight_std=0.1, bias_mean=0.1, device=None, dtype=None, **options):
        options = dict(kernel=kernel, stride=stride, **options)
        super().__init__(functional.conv_caps_routing,
                         (child_types * kernel * kernel, parent_types, parent_dim, child_dim),
                         "bias", (parent_types, parent_dim), weight_std, bias_mean, options, device,
                         dtype)
        self.child_types = child_types

    def forward(self, children, height, width, *, levels=None, trace=False):
        if children.dim() != 3 or children.shape[1] != self.child_types * height * width:
            raise UsageError(f"ConvCaps: input {list(children.shape)}; expected "
                             f"[B, {self.child_types} types x {height}x{width}, "
                             f"{self.weight.shape[3]}]")
        map = children.reshape(children.shape[0], self.child_types, height, width,
                               children.shape[2])
        return functional.conv_caps_routing(map, self.weight, self.bias, levels=levels, trace=trace,
                                            **self.options)

    @staticmethod
    def as_children(poses):
        """[B, P, J, D] -> [B, J * P, D]"""
        return poses.transpose(1, 2).flatten(1, 2)

    def extra_repr(self):
        places, parents, parent_dim, child_dim = self.weight.shape
        return f"{self.child_types} x {child_dim} -> {parents} x {parent_dim}{self._options_repr()}"


_ROUTINGS = {
    "dynamic": functional.dynamic_routing,
    "scaled-distance": functional.scaled_distance_routing,
    "self-attention": functional.self_attention_routing,
}
