import copy
import math

import pytest
import torch

import remcaps


def model():
    return torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
                               torch.nn.Linear(16, 2))


def data():
    x = torch.randn(256, 20)
    return x, (x[:, 0] + x[:, 1] > 0).long()  # 18 of the 20 inputs say nothing


def train(net, rem, epochs, evaluate, x, y):
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    history = []
    for _ in range(epochs):
        net.train()
        for begin in range(0, 256, 32):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x[begin:begin + 32]), y[begin:begin + 32])
            loss.backward()
            rem.after_backward()
            optimiser.step()
            rem.after_step()
        history.append((rem.after_epoch(evaluate), rem.sparsity))
    return history


def evaluation(net, x, y):
    def evaluate():
        net.eval()
        return torch.nn.functional.cross_entropy(net(x), y)
    return evaluate


def test_rem_prunes_what_the_loss_does_not_need():
    net, (x, y) = model(), data()
    rem = remcaps.Rem(net.named_parameters(), lambda_=0.01, tolerance=0.01)
    assert set(rem.masks) == {"0.weight", "3.weight"}  # neither biases nor the norm
    history = train(net, rem, 12, evaluation(net, x, y), x, y)
    sparsities = [sparsity for _, sparsity in history]
    assert sparsities == sorted(sparsities) and sparsities[-1] > 0.4
    for report, _ in history:
        assert report.loss_after <= report.loss_before * 1.01
    assert any(report.pruned for report, _ in history)
    assert (net(x).argmax(1) == y).float().mean() > 0.9
    # Inputs that say nothing lose more weights than those that decide.
    alive = rem.masks["0.weight"].float().mean(0)
    assert alive[2:].mean() < alive[:2].mean()
    for name, mask in rem.masks.items():
        assert bool((dict(net.named_parameters())[name][~mask] == 0).all())


def test_one_step_shrinks_by_the_published_rule():
    net = torch.nn.Linear(3, 2)
    rem = remcaps.Rem(net.named_parameters(), lambda_=0.1, lambda_decay=0.5)
    for expected_lambda in (0.1, 0.05):
        before = net.weight.detach().clone()
        gradient = torch.tensor([[0.0, 0.5, -2.0], [0.25, 0.0, 1.0]])
        net.weight.grad = gradient.clone()
        rem.after_backward()
        expected = before - expected_lambda * before * (1 - gradient.abs()).clamp(min=0)
        assert torch.allclose(net.weight, expected, atol=1e-7)
        rem.after_epoch(lambda: 1.0 + float((net.weight == 0).any()))  # nothing may be pruned
    assert rem.sparsity == 0


def test_search_finds_the_largest_threshold_that_keeps_the_loss():
    net = torch.nn.Linear(8, 1, bias=False)
    net.weight.data = torch.tensor([[0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8]])
    rem = remcaps.Rem(net.named_parameters())
    report = rem.after_epoch(lambda: 1.0 if float((net.weight == 0).sum()) <= 3 else 2.0)
    assert report.pruned and report.loss_before == report.loss_after == 1.0
    assert net.weight.tolist()[0][:4] == [0, 0, 0, pytest.approx(-0.4)]
    assert rem.sparsity == 3 / 8
    net.weight.data.fill_(1)  # an optimiser's momentum
    rem.after_step()
    assert net.weight.tolist()[0] == [0, 0, 0, 1, 1, 1, 1, 1]


def test_patience_waits_and_min_accuracy_holds_back():
    net = torch.nn.Linear(8, 1)
    rem = remcaps.Rem(net.named_parameters(), patience_epochs=1)
    assert not rem.after_epoch(lambda: 1.0).pruned
    assert rem.after_epoch(lambda: 1.5).pruned  # a bad epoch
    other = torch.nn.Linear(8, 1)
    rem = remcaps.Rem(other.named_parameters(), min_accuracy=0.5)
    assert not rem.after_epoch(lambda: (1.0, 0.4)).pruned
    assert rem.after_epoch(lambda: (1.0, 0.6)).pruned


def test_min_accuracy_needs_an_accuracy():
    rem = remcaps.Rem(model().named_parameters(), min_accuracy=0.5)
    with pytest.raises(remcaps.Error, match="evaluate.. returns no accuracy"):
        rem.after_epoch(lambda: 1.0)


def test_a_resumed_run_equals_the_whole_one():
    x, y = data()
    whole = model()
    halves = copy.deepcopy(whole)
    rem = remcaps.Rem(whole.named_parameters(), lambda_=0.01)
    train(whole, rem, 2, evaluation(whole, x, y), x, y)
    first = remcaps.Rem(halves.named_parameters(), lambda_=0.01)
    train(halves, first, 2, evaluation(halves, x, y), x, y)
    resumed_model = copy.deepcopy(halves)
    resumed = remcaps.Rem(resumed_model.named_parameters(), lambda_=0.01)
    resumed.load_state_dict(first.state_dict())
    assert resumed.epoch == 2 and resumed.sparsity == rem.sparsity
    train(whole, rem, 2, evaluation(whole, x, y), x, y)
    train(resumed_model, resumed, 2, evaluation(resumed_model, x, y), x, y)
    for a, b in zip(whole.parameters(), resumed_model.parameters()):
        assert torch.equal(a, b)


def test_an_exception_in_evaluate_restores_the_weights():
    net = torch.nn.Linear(8, 4)
    before = net.weight.detach().clone()
    calls = []

    def evaluate():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return 1.0 / len(calls)

    rem = remcaps.Rem(net.named_parameters())
    with pytest.raises(KeyboardInterrupt):
        rem.after_epoch(evaluate)
    assert torch.equal(net.weight, before) and rem.sparsity == 0 and rem.epoch == 0


def test_snip_keeps_the_weights_with_the_highest_sensitivity():
    net, (x, y) = model(), data()
    twin = copy.deepcopy(net)
    snip = remcaps.Snip(
        net.named_parameters(),
        lambda: torch.nn.functional.cross_entropy(net(x), y).backward(), sparsity=0.75)
    torch.nn.functional.cross_entropy(twin(x), y).backward()
    scores = torch.cat([(w * w.grad).abs().flatten() for w in (twin[0].weight, twin[3].weight)])
    kept = torch.cat([snip.masks[name].flatten() for name in ("0.weight", "3.weight")])
    assert int(kept.sum()) == round(352 * 0.25)
    assert scores[kept].min() >= scores[~kept].max()
    assert all(p.grad is None for p in net.parameters())


def test_magnitude_follows_its_schedule():
    net = model()
    magnitude = remcaps.Magnitude(net.named_parameters(), sparsity=0.8, end=4)
    for epoch in range(1, 5):
        magnitude.after_epoch()
        expected = 0.8 * (1 - (1 - epoch / 4) ** 3)
        assert math.isclose(magnitude.sparsity, expected, abs_tol=2 / 352)


def test_scopes_and_wrong_options():
    net = model()
    rem = remcaps.Rem(net.named_parameters(), layers=["0"], exclude=[])
    assert set(rem.masks) == {"0.weight", "0.bias"}
    with pytest.raises(remcaps.UsageError, match="no parameter of the model matches conv"):
        remcaps.Rem(net.named_parameters(), layers=["conv"])
    with pytest.raises(remcaps.UsageError, match="pruning.lambda"):
        remcaps.Rem(net.named_parameters(), lambda_=2)
    for wrong in (net.parameters(), net, dict(net.named_parameters()), 3):
        with pytest.raises(TypeError, match="expected model.named_parameters()"):
            remcaps.Rem(wrong)
    for result in (None, "x", (1, 2, 3)):
        with pytest.raises(TypeError, match="evaluate\\(\\) returned"):
            rem.after_epoch(lambda: result)
    assert rem.sparsity == 0 and "336 numbers" in repr(rem)


def test_a_prior_of_routing_is_left_alone_and_zeros_are_told():
    attention = remcaps.nn.FcCaps(6, 3, 4, 5, routing="self-attention")
    assert set(remcaps.Rem(attention.named_parameters()).masks) == {"weight"}
    net = torch.nn.Linear(3, 2)
    net.weight.data.zero_()
    with pytest.warns(RuntimeWarning, match="weight is 0 everywhere"):
        remcaps.Rem(net.named_parameters())


def test_a_module_named_prior_is_pruned():
    net = torch.nn.Module()
    net.prior, net.prior_head = torch.nn.Linear(3, 2), torch.nn.Linear(2, 2)
    net.routing = torch.nn.Module()
    net.routing.prior = torch.nn.Parameter(torch.randn(3, 2))
    parameters = list(net.named_parameters())
    assert set(remcaps.Rem(parameters).masks) == {"prior.weight", "prior_head.weight"}
    assert set(remcaps.Rem(parameters, layers=["prior*"]).masks) == {"prior.weight",
                                                                     "prior_head.weight"}


def test_snip_and_magnitude_resume():
    net, (x, y) = model(), data()
    gradients = lambda net: torch.nn.functional.cross_entropy(net(x), y).backward()
    makers = [lambda net: remcaps.Snip(net.named_parameters(), lambda: gradients(net), 0.5),
              lambda net: remcaps.Magnitude(net.named_parameters(), 0.8, end=4)]
    for make in makers:
        first = make(net)
        for _ in range(2 if isinstance(first, remcaps.Magnitude) else 0):
            first.after_epoch()
        twin = model()
        twin.load_state_dict(net.state_dict())
        second = make(twin)
        second.load_state_dict(first.state_dict())
        assert second.epoch == first.epoch and 0 < second.sparsity == first.sparsity
        twin[0].weight.data.fill_(1)
        second.after_step()
        assert torch.equal(twin[0].weight != 0, first.masks["0.weight"])
        if isinstance(first, remcaps.Magnitude):
            first.after_epoch(), second.after_epoch()
            assert first.sparsity == second.sparsity


def test_a_state_of_another_model_or_strategy_is_refused():
    net = model()
    rem = remcaps.Rem(net.named_parameters())
    state = rem.state_dict()
    for wrong, message in [({}, "has no epoch"),
                           ({**state, "mask/other": state["mask/0.weight"]}, "mask/other"),
                           ({**state, "mask/0.weight": torch.ones(2, 2)}, r"expected \[16, 20\]"),
                           (remcaps.Magnitude(net.named_parameters()).state_dict(), "plateau")]:
        with pytest.raises(remcaps.Error, match=message):
            rem.load_state_dict(wrong)
    rem.load_state_dict(state)


def test_a_weight_may_have_any_name():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = torch.nn.Parameter(torch.tensor([[0.1, 0.9]]))

    net = Own()
    rem = remcaps.Rem(net.named_parameters())
    rem.after_epoch(lambda: float(net.matrix[0, 1] == 0))
    assert net.matrix.tolist() == [[0, pytest.approx(0.9)]]
