import copy
import io
import pickle

import pytest
import torch
import torch.nn.utils.prune

import remcaps
from remcaps import functional, nn


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.primary = nn.PrimaryCaps(1, types=2, kernel=3, dim=4, stride=2)  # 8x8 -> 3x3
        self.hidden = nn.ConvCaps(2, 3, kernel=2, child_dim=4, parent_dim=6)  # -> 2x2
        self.top = nn.FcCaps(3 * 4, 5, child_dim=6, parent_dim=8, iterations=2)

    def forward(self, images, **request):
        poses = self.hidden(self.primary(images), 3, 3)
        return self.top(nn.ConvCaps.as_children(poses), **request)


def test_layers_train_together():
    network = Network()
    images, labels = torch.rand(16, 1, 8, 8), torch.arange(16) % 5
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = functional.margin_loss(network(images).norm(dim=-1), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(p.grad is not None for p in network.parameters())


def test_trace_returns_couplings_that_sum_to_one():
    poses, couplings = Network()(torch.rand(2, 1, 8, 8), trace=True)
    assert poses.shape == (2, 5, 8) and couplings.shape == (2, 12, 5)
    assert torch.allclose(couplings.sum(2), torch.ones(2, 12), atol=1e-5)


def test_state_copies_pickles_and_types():
    network, images = Network(), torch.rand(2, 1, 8, 8)
    expected = network(images)
    assert [name for name, _ in network.named_parameters()] == [
        "primary.conv.weight", "primary.conv.bias", "hidden.weight", "hidden.bias", "top.weight",
        "top.bias"]
    other = Network()
    assert not torch.equal(other(images), expected)
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer))
    for twin in (other, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(twin(images), expected)
    double = network.to(torch.float64)(images.double())
    assert double.dtype == torch.float64
    assert torch.allclose(double.float(), expected, atol=1e-5)
    assert network.train().training and not network.eval().training


def test_conv2d_is_torchs_layer_with_other_kernels():
    theirs = torch.nn.Conv2d(3, 64, (3, 4), stride=2)
    ours = nn.Conv2d(3, 64, (3, 4), stride=2)
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(8, 3, 16, 16)
    expected = theirs(images)
    for twin in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert twin.kernels == "fused"
        torch.testing.assert_close(twin(images), expected, rtol=1e-4, atol=1e-5)
    assert repr(ours) == repr(theirs)
    plain = nn.Conv2d(3, 64, (3, 4), stride=2, kernels="reference")
    plain.load_state_dict(theirs.state_dict())
    assert torch.equal(plain(images), expected)

    theirs = torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
    ours = nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("kernels", ["fused", "reference"])
def test_primary_caps_are_their_definition(kernels):
    layer = nn.PrimaryCaps(64, types=8, kernel=5, dim=8, stride=2, kernels=kernels)
    map = torch.randn(4, 64, 15, 15, requires_grad=True)
    channels = torch.nn.functional.conv2d(map, layer.conv.weight, layer.conv.bias, stride=2)
    expected = functional.squash(channels.unflatten(1, (8, 8)), 2).movedim(2, -1).flatten(1, 3)
    got = layer(map)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    inputs, direction = (map, *layer.parameters()), torch.randn_like(expected)
    for ours, theirs in zip(torch.autograd.grad((got * direction).sum(), inputs),
                            torch.autograd.grad((expected * direction).sum(), inputs)):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_pruned_weights_of_torch_reach_primary_caps():
    # torch.nn.utils.prune computes the weight before each forward pass of the layer.
    layer = nn.PrimaryCaps(32, types=4, kernel=3)
    torch.nn.utils.prune.random_unstructured(layer.conv, "weight", 0.5)
    map = torch.randn(4, 32, 9, 9)
    before = layer(map)
    layer.conv.weight_mask.zero_()
    assert not torch.equal(layer(map), before)


def test_other_routings_and_shared_matrices():
    children = torch.rand(3, 12, 4)
    attention = nn.FcCaps(12, 5, 4, 6, routing="self-attention")
    assert [name for name, _ in attention.named_parameters()] == ["weight", "prior"]
    assert attention(children).shape == (3, 5, 6)
    distance = nn.FcCaps(12, 5, 4, 6, routing="scaled-distance", mean="sample")
    assert torch.allclose(distance(children)[:1], distance(children[:1]), atol=1e-6)
    shared = nn.FcCaps(12, 5, 4, 6, shared_over=4, bias_in="none")
    assert [tuple(p.shape) for p in shared.parameters()] == [(3, 5, 6, 4)]
    full = nn.FcCaps(12, 5, 4, 6, bias_in="none")
    full.weight.data = shared.weight.data.repeat_interleave(4, 0)
    assert torch.equal(shared(children), full(children))


def test_layers_look_like_those_of_torch():
    torch.manual_seed(3)
    layer = nn.FcCaps(12, 5, iterations=2, shared_over=4, dtype=torch.float64)
    assert repr(layer) == ("FcCaps(12 x 8 -> 5 x 16, routing='dynamic', shared_over=4, "
                           "iterations=2)")
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    before = copy.deepcopy(layer.state_dict())
    layer.bias.data.zero_()
    torch.manual_seed(3)
    layer.reset_parameters()
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert layer.weight.std().item() == pytest.approx(0.1, rel=0.2)
    assert bool((layer.bias == 0.1).all())


def test_wrong_options_are_usage_errors():
    with pytest.raises(remcaps.UsageError, match="unknown value attention"):
        nn.FcCaps(12, 5, routing="attention")
    with pytest.raises(TypeError, match="FcCaps: unknown argument iteration; known: iterations"):
        nn.FcCaps(12, 5, iteration=2)
    with pytest.raises(TypeError, match="ConvCaps: unknown argument trace"):
        nn.ConvCaps(2, 3, 2, trace=True)
    with pytest.raises(remcaps.UsageError, match="12 children cannot share matrices in groups of 5"):
        nn.FcCaps(12, 5, shared_over=5)
    with pytest.raises(remcaps.UsageError, match=r"expected \[B, 2 types x 3x3, 4\]"):
        nn.ConvCaps(2, 3, 2, child_dim=4)(torch.rand(1, 17, 4), 3, 3)
