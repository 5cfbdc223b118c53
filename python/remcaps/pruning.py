"""REM and other pruning strategies for the parameters of any model."""

import json
import warnings
from typing import NamedTuple

import torch

from remcaps import _remcaps
from remcaps._remcaps import Error


class PruningReport(NamedTuple):
    """What one call of after_epoch() did."""

    pruned: bool  # whether weights were pruned
    threshold: float
    evaluations: int  # calls of evaluate()
    loss_before: float
    loss_after: float


class _Pruner:
    """Masks of a model's weights."""

    def __init__(self, parameters, strategy, layers, exclude, **options):
        try:
            named = {name: tensor for name, tensor in parameters}
            if not all(isinstance(value, torch.Tensor) for value in named.values()):
                raise TypeError
        except (TypeError, ValueError):
            raise TypeError("parameters: expected model.named_parameters(), pairs of a name and a "
                            "tensor") from None
        layers, exclude = ([names] if isinstance(names, str) else list(names)
                           for names in (layers, exclude))
        options.update(strategy=strategy, layers=layers, exclude=exclude)
        self._pruner = _remcaps.Pruner(list(named.items()), json.dumps(options))
        self.epoch = 0
        self._pruner.before_epoch(0)
        for name, mask in self.masks.items():
            if not mask.any():
                warnings.warn(f"{name} is 0 everywhere, which counts as pruned; exclude it if it "
                              "is to be trained", RuntimeWarning, stacklevel=3)

    def __repr__(self):
        masks = self.masks.values()
        return (f"remcaps.{type(self).__name__}({len(masks)} weights of "
                f"{sum(mask.numel() for mask in masks):,} numbers, epoch {self.epoch}, "
                f"{self.sparsity:.1%} pruned)")

    def after_step(self):
        """Call it after the optimiser's step: pruned weights are zero again."""
        self._pruner.after_step(self.epoch)

    @property
    def masks(self):
        """By parameter: True where the weight is not pruned."""
        return {name[len(_MASK):]: mask.bool() for name, mask in self._pruner.state().items()
                if name.startswith(_MASK)}

    @property
    def sparsity(self):
        """The share of the watched weights that is pruned."""
        masks = self.masks.values()
        return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)

    def state_dict(self):
        """Masks and counters, for torch.save()."""
        return {"epoch": self.epoch, **self._pruner.state()}

    def load_state_dict(self, state):
        """Takes what state_dict() gave, for the same model; its pruned weights become zero."""
        state, own = dict(state), self.state_dict()
        for name in sorted({*own, *state}):
            if name not in state:
                raise Error(f"load_state_dict: the state has no {name}")
            if name not in own:
                raise Error(f"load_state_dict: {name} is not of this model and strategy")
            if name.startswith(_MASK) and state[name].shape != own[name].shape:
                raise Error(f"load_state_dict: {name} has the shape {list(state[name].shape)}; "
                            f"expected {list(own[name].shape)}")
        self.epoch = state.pop("epoch")
        self._pruner.load_state(state)
        self._pruner.before_epoch(self.epoch)

    def _end_epoch(self, loss, accuracy, evaluate):
        report = self._pruner.after_epoch(self.epoch, loss, accuracy, evaluate)
        self.epoch += 1
        self._pruner.before_epoch(self.epoch)
        return PruningReport(report.pruned, report.threshold, report.evaluations,
                             report.loss_before, report.loss_after)


class Rem(_Pruner):
    """REM: LOBSTER shrinks weights that the loss ignores; a search after each epoch prunes them.

        rem = remcaps.Rem(model.named_parameters(), lambda_=1e-4)
        for images, labels in batches:
            optimiser.zero_grad()
            loss(model(images), labels).backward()
            rem.after_backward()
            optimiser.step()
            rem.after_step()
        rem.after_epoch(evaluate)

    parameters: model.named_parameters(); move the model to its device first.
    lambda_: a step takes this share of a weight that the loss ignores.
    lambda_decay: lambda of epoch e is lambda_ * lambda_decay**e.
    tolerance: the search may raise the validation loss by this share.
    patience_epochs: search after so many epochs without progress in a row; -1: after every epoch.
    plateau: an epoch brings no progress if its loss exceeds the best by more than this share.
    min_accuracy: no search while the accuracy is not above this.
    begin, end: the first and the last epoch that is followed by a search; -1: no end.
    layers, exclude: patterns of names ("conv*", "class.weight"). By default every layer that owns a
        weight of two or more dimensions is pruned, without biases, norms and priors of routings.

    masks, sparsity and epoch tell the state. Weights that are zero at the start count as pruned.
    state_dict() and load_state_dict() resume. Make the object again for a model that has its
    weights back, then load its state.
    """

    def __init__(self, parameters, lambda_=1e-4, *, lambda_decay=0.99, tolerance=0.0,
                 patience_epochs=-1, plateau=0.01, min_accuracy=0.0, begin=0, end=-1, layers=(),
                 exclude=("*bias*",)):
        super().__init__(parameters, "lobster", layers, exclude, lambda_decay=lambda_decay,
                         tolerance=tolerance, patience_epochs=patience_epochs, plateau=plateau,
                         min_accuracy=min_accuracy, begin=begin, end=end, **{"lambda": lambda_})
        self._min_accuracy = min_accuracy

    def after_backward(self):
        """Call it between backward() and the optimiser's step."""
        self._pruner.after_backward(self.epoch)

    def after_epoch(self, evaluate):
        """Searches the largest threshold that keeps the validation loss, and prunes.

        evaluate: called without arguments, many times. It returns the mean loss over the validation
            images in evaluation mode, or a pair of loss and accuracy. It runs without gradients. An
            exception in it leaves all weights as they were.
        """
        with torch.no_grad():
            loss, accuracy = _loss_and_accuracy(evaluate())
            if accuracy is None and self._min_accuracy > 0:
                raise Error("min_accuracy is given, but evaluate() returns no accuracy; expected a "
                            "loss and an accuracy")
            known = [loss]  # the search begins with the unchanged weights
            return self._end_epoch(
                loss, accuracy or 0.0,
                lambda: known.pop() if known else _loss_and_accuracy(evaluate())[0])


class Snip(_Pruner):
    """SNIP: prunes once, before training, by the gradients of one batch.

        snip = remcaps.Snip(model.named_parameters(),
                            lambda: loss(model(images), labels).backward(), sparsity=0.9)
        for images, labels in batches:
            ...
            optimiser.step()
            snip.after_step()

    parameters: model.named_parameters().
    gradients: a function that calls backward() on the loss of one batch.
    sparsity: the share of the weights to prune.
    layers, exclude: patterns of names ("conv*", "class.weight"). By default every layer that owns a
        weight of two or more dimensions is pruned, without biases, norms and priors of routings.

    masks and sparsity tell the state.
    state_dict() and load_state_dict() resume. Make the object again for a model that has its
    weights back, then load its state.
    """

    def __init__(self, parameters, gradients, sparsity=0.9, *, layers=(), exclude=("*bias*",)):
        super().__init__(parameters, "snip", layers, exclude, sparsity=sparsity)
        self._pruner.at_initialisation(gradients)


class Magnitude(_Pruner):
    """Prunes the smallest weights, more after each epoch.

        magnitude = remcaps.Magnitude(model.named_parameters(), sparsity=0.9, end=10)
        for epoch in range(20):
            for images, labels in batches:
                ...
                optimiser.step()
                magnitude.after_step()
            magnitude.after_epoch()

    parameters: model.named_parameters().
    initial_sparsity, sparsity, begin, end: the share that is pruned grows from the first in epoch
        `begin` to the second in epoch `end`, on a cubic schedule.
    layers, exclude: patterns of names ("conv*", "class.weight"). By default every layer that owns a
        weight of two or more dimensions is pruned, without biases, norms and priors of routings.

    masks, sparsity and epoch tell the state.
    state_dict() and load_state_dict() resume. Make the object again for a model that has its
    weights back, then load its state.
    """

    def __init__(self, parameters, sparsity=0.9, *, initial_sparsity=0.0, begin=0, end=50,
                 layers=(), exclude=("*bias*",)):
        super().__init__(parameters, "magnitude", layers, exclude, sparsity=sparsity,
                         initial_sparsity=initial_sparsity, begin=begin, end=end)
        self._pruner.at_initialisation(lambda: None)

    def after_epoch(self):
        """Prunes what the schedule asks for."""
        return self._end_epoch(0.0, 0.0, lambda: 0.0)


def _loss_and_accuracy(value):
    try:
        if not isinstance(value, (tuple, list)):
            return float(value), None
        loss, accuracy = value
        return float(loss), float(accuracy)
    except (TypeError, ValueError):
        raise TypeError(f"evaluate() returned {value!r}; expected a loss, or a loss and an "
                        "accuracy") from None


_MASK = "mask/"
