import copy

import pytest
import torch

import remcaps


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(),
                               torch.nn.Linear(4 * 36, 5))


def train(model, optimiser, steps, start=0):
    for step in range(start, start + steps):
        torch.manual_seed(step)
        optimiser.zero_grad()
        model(torch.randn(6, 1, 8, 8)).square().mean().backward()
        optimiser.step()
    return model


def same_weights(ours, theirs):
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [
    {}, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-4}, {"weight_decay": 0.1}, {"amsgrad": True},
    {"maximize": True}])
def test_adam_takes_the_steps_of_torchs(options):
    ours, theirs = network(), network()
    train(ours, remcaps.optim.Adam(ours.parameters(), **options), 6)
    train(theirs, torch.optim.Adam(theirs.parameters(), **options), 6)
    same_weights(ours, theirs)
    assert not torch.equal(ours[0].weight, network()[0].weight)


def test_the_state_is_that_of_torch():
    expected = network()
    train(expected, torch.optim.Adam(expected.parameters()), 6)
    for first, second in [(remcaps.optim.Adam, torch.optim.Adam),
                          (torch.optim.Adam, remcaps.optim.Adam)]:
        model = network()
        begun = first(model.parameters())
        train(model, begun, 3)
        going_on = second(model.parameters())
        going_on.load_state_dict(copy.deepcopy(begun.state_dict()))
        train(model, going_on, 3, start=3)
        same_weights(model, expected)


def test_groups_frozen_parameters_schedules_and_closures_work():
    ours, theirs = network(), network()
    for model, kind in ((ours, remcaps.optim.Adam), (theirs, torch.optim.Adam)):
        model[0].bias.requires_grad_(False)
        optimiser = kind([{"params": model[0].parameters()},
                          {"params": model[2].parameters(), "lr": 0.002}])
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)

        def closure():
            optimiser.zero_grad()
            loss = model(torch.ones(2, 1, 8, 8)).square().mean()
            loss.backward()
            return loss

        losses = []
        for step in range(4):
            model[2].bias.requires_grad_(step > 0)  # its steps are counted on their own
            losses.append(optimiser.step(closure).item())
            schedule.step()
        assert losses[-1] < losses[0]
    same_weights(ours, theirs)
    assert torch.equal(ours[0].bias, network()[0].bias)


@pytest.mark.parametrize("change", [lambda m: m.double(),
                                    lambda m: m.to(memory_format=torch.channels_last)])
def test_other_parameters_go_through_torchs_code(change):
    ours, theirs = change(network()), change(network())
    for model, kind in ((ours, remcaps.optim.Adam), (theirs, torch.optim.Adam)):
        optimiser = kind(model.parameters())
        model(torch.ones(2, 1, 8, 8, dtype=model[0].weight.dtype)).square().mean().backward()
        optimiser.step()
    same_weights(ours, theirs)


def test_gradients_are_forgotten_and_changed_weights_are_noticed():
    model = network()
    optimiser = remcaps.optim.Adam(model.parameters())
    images = torch.randn(2, 1, 8, 8, requires_grad=True)
    loss = model(images).square().mean()
    loss.backward(retain_graph=True)
    optimiser.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    optimiser.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_rem_prunes_what_adam_moves():
    model = network()
    optimiser = remcaps.optim.Adam(model.parameters(), lr=0.01)
    with torch.no_grad():
        model[0].weight[0].zero_()
    rem = remcaps.Rem(model.named_parameters(), lambda_=1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.randn(6, 1, 8, 8)).square().mean().backward()
        rem.after_backward()
        optimiser.step()
        rem.after_step()
    assert (model[0].weight[0] == 0).all() and (model[0].weight[1] != 0).any()
