"""REM and other pruning strategies for the parameters of any model."""

import json
from typing import NamedTuple

import torch

from remcaps import _remcaps


class PruningReport(NamedTuple):
    """What one call of after_epoch() did."""

    pruned: bool  # whether weights were pruned
    threshold: float
    evaluations: int  # calls of evaluate()
    loss_before: float
    loss_after: float


class _Pruner:
    """Masks of a model's weights.

    By default the layers that own a weight of two or more dimensions are pruned, without biases and
    norms. `layers` and `exclude` are patterns of names ("conv*", "class.weight") that change this.
    """

    def __init__(self, parameters, strategy, layers, exclude, **options):
        options.update(strategy=strategy, layers=list(layers), exclude=list(exclude))
        self._pruner = _remcaps.Pruner(list(parameters), json.dumps(options))
        self.epoch = 0
        self._pruner.before_epoch(0)

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
        state = dict(state)
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

    lambda_: a step takes this share of a weight that the loss ignores.
    lambda_decay: lambda of epoch e is lambda_ * lambda_decay**e.
    tolerance: the search may raise the validation loss by this share.
    patience_epochs: search after so many epochs without progress in a row; -1: after every epoch.
    plateau: an epoch brings no progress if its loss exceeds the best by more than this share.
    min_accuracy: no search while the accuracy is not above this.
    begin, end: the first and the last epoch that is followed by a search; -1: no end.
    """

    def __init__(self, parameters, lambda_=1e-4, *, lambda_decay=0.99, tolerance=0.0,
                 patience_epochs=-1, plateau=0.01, min_accuracy=0.0, begin=0, end=-1, layers=(),
                 exclude=("*bias*",)):
        super().__init__(parameters, "lobster", layers, exclude, lambda_decay=lambda_decay,
                         tolerance=tolerance, patience_epochs=patience_epochs, plateau=plateau,
                         min_accuracy=min_accuracy, begin=begin, end=end, **{"lambda": lambda_})

    def after_backward(self):
        """Call it between backward() and the optimiser's step."""
        self._pruner.after_backward(self.epoch)

    def after_epoch(self, evaluate):
        """Searches the largest threshold that keeps the validation loss, and prunes.

        evaluate() is called many times. It returns the mean loss over the validation images in
        evaluation mode, or a pair of loss and accuracy. An exception in it leaves all weights as they
        were.
        """
        with torch.no_grad():
            loss, accuracy = _loss_and_accuracy(evaluate())
        known = [loss]  # the search begins with the unchanged weights
        return self._end_epoch(
            loss, accuracy,
            lambda: known.pop() if known else _loss_and_accuracy(evaluate())[0])


class Snip(_Pruner):
    """SNIP: prunes once, before training, by the gradients of one batch.

    gradients: a function that calls backward() on the loss of one batch.
    """

    def __init__(self, parameters, gradients, sparsity=0.9, *, layers=(), exclude=("*bias*",)):
        super().__init__(parameters, "snip", layers, exclude, sparsity=sparsity)
        self._pruner.at_initialisation(gradients)


class Magnitude(_Pruner):
    """Prunes the smallest weights on a cubic schedule from epoch `begin` to epoch `end`."""

    def __init__(self, parameters, sparsity=0.9, *, initial_sparsity=0.0, begin=0, end=50,
                 layers=(), exclude=("*bias*",)):
        super().__init__(parameters, "magnitude", layers, exclude, sparsity=sparsity,
                         initial_sparsity=initial_sparsity, begin=begin, end=end)
        self._pruner.at_initialisation(lambda: None)

    def after_epoch(self):
        """Prunes what the schedule asks for."""
        return self._end_epoch(0.0, 0.0, lambda: 0.0)


def _loss_and_accuracy(value):
    loss, accuracy = value if isinstance(value, tuple) else (value, 0.0)
    return float(loss), float(accuracy)


_MASK = "mask/"
