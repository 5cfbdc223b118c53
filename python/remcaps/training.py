"""Training recipes of the program, and the numbers of their runs."""

import json
import os

from remcaps import _remcaps
from remcaps._call import assigned, call


def recipes():
    """The names of the recipes that come with remcaps."""
    return _remcaps.recipe_names()


def train(recipe, *, out="", data="", device="cpu", on_epoch=None, **overrides):
    """Trains a recipe and returns its summary as a dict, with the keys of summary.json.

    recipe: a name ("fashion-mnist/eff-capsnet-rem") or a file.
    out: the folder of the runs; "": runs/<data set>/<recipe>. A run is never written over another.
    on_epoch: called after every epoch with that epoch's row of metrics.csv, a dict. An exception in
        it ends the run; its state is saved.
    overrides: keys of the recipe, a section as a dict: ``train={"epochs": 3}``,
        ``pruning={"lambda": 1e-3}``, ``kernels="reference"``.

    Ctrl-C finishes the step, saves the state and raises KeyboardInterrupt; resume() goes on.
    """
    return json.loads(call(_remcaps.train, recipe=os.fspath(recipe), overrides=assigned(overrides),
                           out=os.fspath(out), data=os.fspath(data), device=str(device),
                           on_epoch=_with_last_row(on_epoch)))


def resume(run, *, data="", device="cpu", epochs=None, on_epoch=None):
    """Goes on with a run that was stopped, exactly. epochs: a new limit."""
    return json.loads(call(_remcaps.resume, run=os.fspath(run), data=os.fspath(data),
                           device=str(device), epochs=epochs, on_epoch=_with_last_row(on_epoch)))


def metrics(run):
    """metrics.csv of a run's folder: {column: [a number per epoch]}; pandas.DataFrame takes it."""
    return json.loads(_remcaps.metrics(os.fspath(run)))


def summary(run):
    """summary.json of a finished run's folder."""
    return json.loads(_remcaps.summary(os.fspath(run)))


def _with_last_row(on_epoch):
    if on_epoch is None:
        return None
    if not callable(on_epoch):
        raise TypeError(f"on_epoch is of type {type(on_epoch).__name__}; expected a function")
    return lambda text: on_epoch({key: column[-1] for key, column in json.loads(text).items()})
