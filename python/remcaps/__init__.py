"""Capsule networks, Routing Entropy Minimization (REM) and parse trees for PyTorch.

    remcaps.nn           capsule layers as torch.nn.Modules
    remcaps.functional   routing, squash and the margin loss on tensors, with autograd
    remcaps.optim        Adam as one pass over the parameters
    remcaps.Rem          REM for the parameters of any model; Snip and Magnitude likewise
    remcaps.ParseTrees   the dictionary of parse trees and its entropy
    remcaps.load         a trained network of the program: call it, explain it
    remcaps.evaluate     its accuracy; remcaps.entropy: its parse trees
    remcaps.train        trains a recipe of the program; remcaps.resume goes on
    remcaps.metrics      the numbers of a run, for tables; remcaps.summary likewise
    remcaps.convert      a weights file of a network that others trained
    remcaps.data         data sets as tensors
"""

import os as _os
import warnings as _warnings

import torch as _torch  # noqa: F401  loads the libraries that the extension module links

from remcaps import _remcaps

# Debian's PyTorch starts with one thread: use all cores, unless OMP_NUM_THREADS is set.
_warning = _remcaps.prepare(_os.path.dirname(_os.path.abspath(__file__)))
if _warning:
    _warnings.warn(_warning, RuntimeWarning, stacklevel=2)

from remcaps import data, functional, nn, optim
from remcaps._remcaps import Error, UsageError, __version__
from remcaps.convert import convert
from remcaps.network import Answer, Edge, Explanation, Network, entropy, evaluate, load, zoo
from remcaps.parse_trees import ParseTrees, Tree, quantize
from remcaps.pruning import Magnitude, PruningReport, Rem, Snip
from remcaps.training import metrics, recipes, resume, summary, train

__all__ = [
    "Answer",
    "Edge",
    "Error",
    "Explanation",
    "Magnitude",
    "Network",
    "ParseTrees",
    "PruningReport",
    "Rem",
    "Snip",
    "Tree",
    "UsageError",
    "convert",
    "data",
    "entropy",
    "evaluate",
    "functional",
    "load",
    "metrics",
    "nn",
    "optim",
    "quantize",
    "recipes",
    "resume",
    "summary",
    "train",
    "zoo",
]
