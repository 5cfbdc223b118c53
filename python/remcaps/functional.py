"""Routing, squash and the margin loss on tensors, with autograd.

Shapes: B images, I children of Din numbers, J parents of Dout numbers.

    children  [B, I, Din]
    weight    [I, J, Dout, Din]
    poses     [B, J, Dout]
    couplings [B, I, J]

Routing functions return the parents' poses. With ``trace=True`` they return ``(poses, couplings)``;
couplings have no gradient. ``levels=K`` rounds the couplings of the last iteration to K levels
before the weighted sum.

float32 tensors go through fused kernels, which have no second derivative. ``kernels="reference"``,
other types and torch.jit.trace() use plain tensor code.
"""

import torch

from remcaps import _remcaps
from remcaps._call import call


def dynamic_routing(children, weight, bias=None, *, iterations=3, gradient="last", bias_in="every",
                    epsilon=1e-6, kernels="fused", levels=None, trace=False):
    """Routing by agreement (Sabour et al.).

    bias: [J, Dout], added before the squash in the iterations that `bias_in` names: "every",
        "last" or "none".
    gradient: "last" is the published code: votes are constants except in the last weighted sum;
        "full" differentiates through every iteration.
    epsilon: of the squash.
    """
    return _routed(_remcaps.dynamic_routing, children=children, weight=weight, bias=bias,
                   iterations=iterations, gradient=gradient, bias_in=bias_in, epsilon=epsilon,
                   kernels=kernels, levels=levels, trace=trace)


def scaled_distance_routing(children, weight, bias=None, *, iterations=3, gradient="last",
                            bias_in="every", mean="batch", epsilon=1e-6, kernels="fused",
                            levels=None, trace=False):
    """Routing by scaled distance agreement (gamma-CapsNet).

    mean: the mean distance is taken over the whole "batch" (published), or over each "sample".
    The other arguments are those of dynamic_routing().
    """
    return _routed(_remcaps.scaled_distance_routing, children=children, weight=weight, bias=bias,
                   iterations=iterations, gradient=gradient, bias_in=bias_in, mean=mean,
                   epsilon=epsilon, kernels=kernels, levels=levels, trace=trace)


def self_attention_routing(children, weight, prior, *, agreement="all", prior_in="rounded",
                           epsilon=1e-7, levels=None, trace=False):
    """Self-attention routing (Efficient-CapsNet). prior: [I, J], added to the couplings.

    agreement: a vote is compared with the votes of "all" children for its parent (published), or
        with "self" only with itself.
    prior_in: with "rounded" (published) the prior is added before ``levels`` round the couplings;
        with "exact" after it, and the returned couplings are without it.
    """
    return _routed(_remcaps.self_attention_routing, children=children, weight=weight, prior=prior,
                   agreement=agreement, prior_in=prior_in, epsilon=epsilon, levels=levels,
                   trace=trace)


def conv_caps_routing(children, weight, bias=None, *, kernel, stride=1, iterations=3,
                      gradient="last", bias_in="every", epsilon=1e-6, kernels="fused", levels=None,
                      trace=False):
    """Dynamic routing inside the windows of a map of capsules.

    children: [B, T, H, W, Din], T capsule types on a map.
    weight: [T * kernel * kernel, J, Dout, Din], shared by all P positions of the window.
    kernel, stride: of the window, in capsules.
    Returns poses [B, P, J, Dout]; couplings are [B, P, T * kernel * kernel, J]. The other arguments
    are those of dynamic_routing().
    """
    return _routed(_remcaps.conv_caps_routing, children=children, weight=weight, bias=bias,
                   kernel=kernel, stride=stride, iterations=iterations, gradient=gradient,
                   bias_in=bias_in, epsilon=epsilon, kernels=kernels, levels=levels, trace=trace)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *,
           kernels="fused"):
    """torch.nn.functional.conv2d, faster on a CPU.

    The kernels of the program are used for float32 without padding, dilation and groups, if the
    number of filters is a multiple of 64 (16 without AVX-512). If the map needs a gradient, so must
    be the number of its channels. PyTorch computes the rest.
    """
    if isinstance(padding, str):
        return torch.nn.functional.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return call(_remcaps.conv2d, input=input, weight=weight, bias=bias,
                stride=_pair("stride", stride), padding=_pair("padding", padding),
                dilation=_pair("dilation", dilation), groups=groups, kernels=kernels)


def squash(preactivation, dim=-1, *, form="norm", epsilon=1e-6):
    """Turns pre-activations, capsules along `dim`, into poses shorter than 1. Same shape.

    form: of the length n of a pre-activation, "norm" makes n^2 / (1 + n^2) (Sabour et al.),
        "exponential" 1 - exp(-n) (Efficient-CapsNet).
    epsilon: added to n^2 under the root, so that 0 has a gradient.
    """
    return call(_remcaps.squash, preactivation=preactivation, dim=dim, form=form, epsilon=epsilon)


def squash_to_capsules(map, types, dim, *, form="norm", epsilon=1e-6, kernels="fused"):
    """The squashed capsules of a map [B, types * dim, H, W]: [B, types * H * W, dim]."""
    return call(_remcaps.squash_to_capsules, map=map, types=types, dim=dim, form=form,
                epsilon=epsilon, kernels=kernels)


def margin_loss(lengths, labels, *, m_plus=0.9, m_minus=0.1, lambda_=0.5, kernels="fused"):
    """The mean margin loss of B images.

    lengths: of the class capsules, [B, J], such as ``poses.norm(dim=-1)``.
    labels: int64 [B], 0 to J - 1.
    m_plus, m_minus: what the length of the true class should exceed, and that of the others not.
    lambda_: weight of the others.
    """
    return call(_remcaps.margin_loss, lengths=lengths, labels=labels, m_plus=m_plus,
                m_minus=m_minus, lambda_=lambda_, kernels=kernels)


def _pair(name, size):
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if len(sizes) > 2 or not all(hasattr(number, "__index__") for number in sizes):
        raise TypeError(f"{name} is {size!r}; expected one or two integers")
    return sizes * 2 if len(sizes) == 1 else sizes


def _routed(function, **arguments):
    result = call(function, **arguments)
    return result if arguments["trace"] else result[0]
