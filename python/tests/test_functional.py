import pytest
import torch

import remcaps
from remcaps import functional as F


def layer(batch=4, children=6, parents=3, child_dim=4, parent_dim=5, dtype=torch.float32):
    u = torch.randn(batch, children, child_dim, dtype=dtype, requires_grad=True)
    w = (torch.randn(children, parents, parent_dim, child_dim, dtype=dtype) * 0.3)
    b = torch.full((parents, parent_dim), 0.1, dtype=dtype)
    return u, w.requires_grad_(), b.requires_grad_()


def plain_dynamic(u, w, b, iterations):
    votes = torch.einsum("ijdk,bik->bijd", w, u)
    logits = torch.zeros(votes.shape[:3], dtype=u.dtype)
    for iteration in range(iterations):
        last = iteration == iterations - 1
        c = logits.softmax(2)
        s = torch.einsum("bij,bijd->bjd", c, votes if last else votes.detach()) + b
        n2 = s.square().sum(-1, keepdim=True)
        v = s * n2 / ((1 + n2) * (n2 + 1e-6).sqrt())
        if last:
            return v, c
        logits = logits + torch.einsum("bijd,bjd->bij", votes.detach(), v)


@pytest.mark.parametrize("kernels", ["fused", "reference"])
def test_dynamic_routing_equals_its_definition_with_gradients(kernels):
    u, w, b = layer(batch=17, children=40)
    poses, couplings = F.dynamic_routing(u, w, b, trace=True, kernels=kernels)
    expected, expected_couplings = plain_dynamic(u, w, b, 3)
    assert torch.allclose(poses, expected, atol=1e-6)
    assert torch.allclose(couplings, expected_couplings, atol=1e-6)
    assert not couplings.requires_grad
    direction = torch.randn_like(poses)
    got = torch.autograd.grad((poses * direction).sum(), (u, w, b))
    want = torch.autograd.grad((expected * direction).sum(), (u, w, b))
    for a, e in zip(got, want):
        assert torch.allclose(a, e, atol=1e-5)


@pytest.mark.parametrize("routing", [F.dynamic_routing, F.scaled_distance_routing])
def test_gradcheck_in_double_precision(routing):
    u, w, b = layer(batch=2, children=3, child_dim=2, parent_dim=3, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda *inputs: routing(*inputs, gradient="full"), (u, w, b))


def test_gradcheck_of_self_attention_squash_and_margin_loss():
    u, w, _ = layer(batch=2, children=3, child_dim=2, parent_dim=3, dtype=torch.float64)
    prior = (torch.randn(3, 3, dtype=torch.float64) * 0.1).requires_grad_()
    assert torch.autograd.gradcheck(F.self_attention_routing, (u, w, prior))
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for form in ("norm", "exponential"):
        assert torch.autograd.gradcheck(lambda x: F.squash(x, form=form), (x,))
    lengths = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1])
    assert torch.autograd.gradcheck(lambda l: F.margin_loss(l, labels), (lengths,))


def test_margin_loss_equals_its_definition():
    lengths = torch.tensor([[0.95, 0.3], [0.2, 0.05]])
    loss = F.margin_loss(lengths, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx((0.5 * 0.2**2 + 0.7**2) / 2)
    for kernels in ("fused", "reference"):
        same = F.margin_loss(lengths, torch.tensor([0, 0]), kernels=kernels)
        assert torch.allclose(same, loss)
    with pytest.raises(remcaps.UsageError, match="kernels: unknown value"):
        F.margin_loss(lengths, torch.tensor([0, 0]), kernels="fuse")


@pytest.mark.parametrize("options", [
    {}, {"stride": 2}, {"stride": (1, 3)}, {"stride": [2]}, {"padding": 1}, {"padding": (0, 2)},
    {"padding": "same"}, {"dilation": 2}, {"groups": 2}, {"kernels": "reference"}])
@pytest.mark.parametrize("with_bias", [True, False])
def test_conv2d_equals_that_of_torch_with_gradients(options, with_bias):
    map = torch.randn(4, 64, 12, 11, requires_grad=True)
    weight = torch.randn(64, 64 // options.get("groups", 1), 3, 5) * 0.1
    given = [map, weight.requires_grad_()]
    if with_bias:
        given.append(torch.randn(64, requires_grad=True))
    got = F.conv2d(*given, **options)
    expected = torch.nn.functional.conv2d(
        *given, **{name: value for name, value in options.items() if name != "kernels"})
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(expected)
    for ours, theirs in zip(torch.autograd.grad((got * direction).sum(), given),
                            torch.autograd.grad((expected * direction).sum(), given)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_conv2d_has_kernels_of_its_own_for_float32_maps():
    # They have no second derivative, PyTorch's convolution has one.
    def second_derivative(map, weight, **options):
        return torch.autograd.functional.hvp(
            lambda x: F.conv2d(x, weight, **options).pow(3).sum(), map, torch.ones_like(map))[1]

    map, weight = torch.randn(4, 64, 12, 12), torch.randn(64, 64, 3, 3) * 0.1
    with pytest.raises(RuntimeError, match="convolution.*no second derivative"):
        second_derivative(map, weight)
    for options in ({"kernels": "reference"}, {"padding": 1}, {"dilation": 2}):
        assert second_derivative(map, weight, **options).abs().max() > 0
    assert second_derivative(map, weight[:63]).abs().max() > 0
    assert second_derivative(map.double(), weight.double()).abs().max() > 0
    with torch.autocast("cpu", torch.bfloat16):
        assert F.conv2d(map, weight).dtype == torch.bfloat16


def test_gradcheck_of_conv2d():
    map = torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *inputs: F.conv2d(*inputs, stride=2), (map, weight))


@pytest.mark.parametrize("wrong, message", [
    ({"stride": 0}, "stride"), ({"padding": -1}, "padding"), ({"bias": torch.zeros(31)}, "bias"),
    ({"bias": torch.zeros(32).double()}, "bias type"),
    ({"weight": torch.zeros(32, 3, 3, 3)}, "channels"), ({"groups": 3}, "groups|divisible")])
def test_conv2d_refuses_what_torch_refuses(wrong, message):
    given = {"input": torch.zeros(8, 32, 12, 12), "weight": torch.zeros(32, 32, 3, 3), **wrong}
    with pytest.raises(RuntimeError, match=message):
        F.conv2d(**given)


def test_wrong_sizes_of_conv2d_are_type_errors():
    with pytest.raises(TypeError, match=r"stride is \(1, 2, 3\); expected one or two integers"):
        F.conv2d(torch.zeros(1, 1, 5, 5), torch.zeros(1, 1, 3, 3), stride=(1, 2, 3))
    with pytest.raises(TypeError, match="dilation is 1.5; expected one or two integers"):
        F.conv2d(torch.zeros(1, 1, 5, 5), torch.zeros(1, 1, 3, 3), dilation=1.5)


def test_quantized_couplings_lie_on_levels():
    u, w, b = layer()
    for routing in (F.dynamic_routing, F.scaled_distance_routing):
        poses, couplings = routing(u, w, b, levels=11, trace=True)
        assert poses.shape == (4, 3, 5)
        assert torch.allclose(couplings * 10, (couplings * 10).round(), atol=1e-5)


def test_without_bias_and_without_trace_only_poses_come_back():
    u, w, _ = layer()
    poses = F.dynamic_routing(u, w)
    assert isinstance(poses, torch.Tensor)
    assert torch.equal(poses, F.dynamic_routing(u, w, trace=True)[0])


def test_one_window_of_conv_caps_is_a_fully_connected_layer():
    weight = torch.randn(2 * 3 * 3, 4, 5, 6) * 0.3
    bias = torch.full((4, 5), 0.1)
    children = torch.randn(3, 2, 3, 3, 6)
    poses, couplings = F.conv_caps_routing(children, weight, bias, kernel=3, trace=True)
    expected = F.dynamic_routing(children.flatten(1, 3), weight, bias)
    assert couplings.shape == (3, 1, 18, 4)
    assert torch.allclose(poses[:, 0], expected, atol=1e-6)


def test_wrong_arguments_are_one_line():
    u, w, b = layer()
    with pytest.raises(remcaps.UsageError, match="gradient: unknown value fulll.*full") as error:
        F.dynamic_routing(u, w, b, gradient="fulll")
    assert isinstance(error.value, ValueError) and isinstance(error.value, remcaps.Error)
    with pytest.raises(remcaps.Error) as error:
        F.dynamic_routing(u, w[:5], b)
    assert isinstance(error.value, RuntimeError) and "\n" not in str(error.value)
    with pytest.raises(remcaps.UsageError, match="levels: 1; expected 2 to 256"):
        F.dynamic_routing(u, w, b, levels=1)
    for given, message in [(("children", w, b), "children is of type str; expected a tensor"),
                           ((u, w.detach().numpy(), b), "weight is of type ndarray"),
                           ((u, w, 3), "bias is of type int; expected a tensor")]:
        with pytest.raises(TypeError, match=message) as error:
            F.dynamic_routing(*given)
        assert "\n" not in str(error.value)
    with pytest.raises(TypeError, match="levels is of type float; expected an integer"):
        F.dynamic_routing(u, w, b, levels=11.0)
    with pytest.raises(remcaps.Error, match="windows of 3x3, 1 apart"):
        F.conv_caps_routing(torch.randn(2, 2, 2, 2, 6), torch.randn(18, 3, 5, 6), kernel=3)


@pytest.mark.parametrize("labels, message", [
    (torch.tensor([0, 3]), "label 3; expected 0 to 2"), (torch.tensor([-1, 0]), "label -1"),
    (torch.tensor([0.0, 1.0]), "labels are Float")])
def test_labels_that_name_no_class_are_errors(labels, message):
    with pytest.raises(remcaps.Error, match=message):
        F.margin_loss(torch.rand(2, 3), labels)


def test_a_second_derivative_is_exact_or_an_error():
    def penalty(function, x):
        (gradient,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    u, w, _ = layer()
    with pytest.raises(RuntimeError, match="no second derivative"):
        penalty(lambda x: F.dynamic_routing(x, w), u)
    map = torch.randn(2, 8, 3, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        penalty(lambda x: F.squash_to_capsules(x, 2, 4), map)
    assert penalty(lambda x: F.dynamic_routing(x, w, kernels="reference"), u).abs().max() > 0


def test_a_traced_layer_computes_the_same():
    layer = torch.nn.Sequential(remcaps.nn.PrimaryCaps(2, types=2, kernel=3, dim=4),
                                remcaps.nn.FcCaps(2 * 9, 3, 4, 5))
    traced = torch.jit.trace(layer, torch.randn(2, 2, 5, 5))
    images = torch.randn(2, 2, 5, 5)
    torch.testing.assert_close(traced(images), layer(images), rtol=1e-5, atol=1e-6)
