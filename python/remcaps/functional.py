"""Routing, squash and the margin loss on tensors, with autograd.

Shapes: B images, I children of Din numbers, J parents of Dout numbers.

    children  [B, I, Din]
    weight    [I, J, Dout, Din]
    poses     [B, J, Dout]
    couplings [B, I, J]

float32 tensors go through fused kernels; ``kernels="reference"`` and other types use plain tensor
code. ``levels=K`` rounds the couplings of the last iteration to K levels before the weighted sum.
With ``trace=True`` a routing function returns ``(poses, couplings)``; couplings have no gradient.
"""

from remcaps import _remcaps


def dynamic_routing(children, weight, bias=None, *, iterations=3, gradient="last", bias_in="every",
                    epsilon=1e-6, kernels="fused", levels=None, trace=False):
    """Routing by agreement (Sabour et al.).

    gradient: "last" is the published code: votes are constants except in the last weighted sum;
        "full" differentiates through every iteration.
    bias_in: the iterations that add the bias [J, Dout]: "every", "last" or "none".
    epsilon: of the squash.
    """
    return _routed(_remcaps.dynamic_routing(children, weight, bias, iterations, gradient, bias_in,
                                            epsilon, kernels, levels, trace), trace)


def scaled_distance_routing(children, weight, bias=None, *, iterations=3, gradient="last",
                            bias_in="every", mean="batch", epsilon=1e-6, kernels="fused",
                            levels=None, trace=False):
    """Routing by scaled distance agreement (gamma-CapsNet).

    mean: the mean distance is taken over the whole "batch" (published), or over each "sample".
    """
    return _routed(_remcaps.scaled_distance_routing(children, weight, bias, iterations, gradient,
                                                    bias_in, mean, epsilon, kernels, levels,
                                                    trace), trace)


def self_attention_routing(children, weight, prior, *, agreement="all", prior_in="rounded",
                           epsilon=1e-7, levels=None, trace=False):
    """Self-attention routing (Efficient-CapsNet). prior: [I, J], added to the couplings.

    agreement: a vote is compared with the votes of "all" children for its parent (published), or
        with "self" only with itself.
    prior_in: with "rounded" (published) the prior is added before ``levels`` round the couplings;
        with "exact" after it, and the returned couplings are without it.
    """
    return _routed(_remcaps.self_attention_routing(children, weight, prior, agreement, prior_in,
                                                   epsilon, levels, trace), trace)


def conv_caps_routing(children, weight, bias=None, *, kernel, stride=1, iterations=3,
                      gradient="last", bias_in="every", epsilon=1e-6, kernels="fused", levels=None,
                      trace=False):
    """Dynamic routing inside the windows of a map of capsules.

    children: [B, T, H, W, Din], T capsule types on a map.
    weight: [T * kernel * kernel, J, Dout, Din], shared by all P positions of the window.
    Returns poses [B, P, J, Dout] and couplings [B, P, T * kernel * kernel, J].
    """
    return _routed(_remcaps.conv_caps_routing(children, weight, bias, kernel, stride, iterations,
                                              gradient, bias_in, epsilon, kernels, levels, trace),
                   trace)


def squash(preactivation, dim=-1, *, form="norm", epsilon=1e-6):
    """Turns pre-activations into poses shorter than 1. form: "norm" or "exponential"."""
    return _remcaps.squash(preactivation, dim, form, epsilon)


def squash_to_capsules(map, types, dim, *, form="norm", epsilon=1e-6, kernels="fused"):
    """The squashed capsules of a map [B, types * dim, H, W]: [B, types * H * W, dim]."""
    return _remcaps.squash_to_capsules(map, types, dim, form, epsilon, kernels)


def margin_loss(lengths, labels, *, m_plus=0.9, m_minus=0.1, lambda_=0.5):
    """The mean margin loss of capsule lengths [B, J] and labels, int64 [B]."""
    return _remcaps.margin_loss(lengths, labels, m_plus, m_minus, lambda_)


def _routed(result, trace):
    return result if trace else result[0]
