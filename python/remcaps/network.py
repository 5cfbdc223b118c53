"""Trained networks: calling, explaining and measuring them."""

import html
import json
import os
from typing import Dict, List, NamedTuple, Optional

import torch

from remcaps import _remcaps, drawing
from remcaps._remcaps import UsageError


class Answer(NamedTuple):
    """What a network says of B images."""

    lengths: torch.Tensor  # of the class capsules, [B, J]
    poses: torch.Tensor  # [B, J, D]
    predicted: torch.Tensor  # int64 [B]
    couplings: Optional[torch.Tensor]  # of the last routing layer, [B, I, J]; None without trace
    tree: Optional[torch.Tensor]  # levels of the couplings to the prediction, uint8 [B, I]
    layers: Dict[str, torch.Tensor]  # couplings of every routing layer, by its name


class Edge(NamedTuple):
    """From capsule `start` of layer `layer` to capsule `end` of the layer above."""

    layer: int
    start: int
    end: int
    coupling: float
    share: float  # of the evidence for `end`; 0 in the paper's view


class Parts(NamedTuple):
    """Effective parts of an answer."""

    half: int  # the least number of capsules that carry half of the positive contributions
    spread: float  # exp of the entropy of their shares


class Explanation(NamedTuple):
    """How a network saw one image."""

    answer: Answer
    class_name: str
    saliency: Optional[torch.Tensor]  # the paper's, [H, W]; None if capsules lie on no grid
    layer_names: List[str]  # of the parse tree
    edges: List[Edge]  # of the parse tree
    svg: str  # the drawn tree; "" if there is none
    pictures: List[str]  # data URIs: the image and, with a grid, the map and both
    evidence: float  # for the answer: the sum of the contributions and of the biases' part
    contributions: torch.Tensor  # of each capsule of the lowest layer to the answer, [I]
    bias_contribution: float
    parts: Parts
    contribution_map: Optional[torch.Tensor]  # [H, W], for the answer and against it

    def _repr_html_(self):
        images = "".join(f'<img src="{uri}" style="margin-right: 8px">' for uri in self.pictures)
        return f"<div><b>{html.escape(self.class_name)}</b></div><div>{images}</div>{self.svg}"

    def plot(self, figure=None):
        """The image, what the network looked at, and the parse tree, in a matplotlib figure."""
        return drawing.explanation(self, figure)


class Network:
    """A trained network; remcaps.load() makes it. Its answers have no gradients."""

    def __init__(self, name, device="cpu"):
        self._network = _remcaps.Network(os.fspath(name), device)
        self.name = os.fspath(name)
        self.architecture = self._network.architecture()
        self.class_names = self._network.class_names()
        self.input = self._network.input()  # channels, height, width

    def __repr__(self):
        return f"remcaps.Network({self.name!r}, architecture={self.architecture!r})"

    def _repr_html_(self):
        rows = {"network": self.architecture, "input": "x".join(map(str, self.input)),
                "classes": ", ".join(self.class_names),
                "parameters": f"{sum(t.numel() for t in self.state_dict().values()):,}"}
        return drawing.html_table([self.name, ""], rows.items())

    def read(self, picture, *, invert=False):
        """A PNG or JPEG file of any size as the network's input, [1, C, H, W]."""
        return self._network.read(os.fspath(picture), invert)

    def prepare(self, pixels):
        """Pixels, uint8 [B, C, H, W], as the network's input."""
        return self._network.prepare(torch.as_tensor(pixels))

    def __call__(self, images, *, levels=None, trace=False):
        """Classifies images: uint8 pixels, or float32 that read() or prepare() made.

        levels: quantize the couplings to K levels; the answer then has couplings and tree.
        trace: the answer has couplings.
        """
        return _answer(self._network.call(self._input(images), levels, trace))

    def explain(self, image, *, levels=11, view="contributions"):
        """What the answer for one image rests on: a file's name, pixels, or what prepare() made.

        view: what pictures and parse tree show: "contributions", or "couplings", the paper's view.
        """
        if view not in ("contributions", "couplings"):
            raise UsageError(f"view {view!r}; expected 'contributions' or 'couplings'")
        if isinstance(image, (str, os.PathLike)):
            image = self.read(image)
        found = self._network.explain(self._input(image), levels, view == "contributions")
        answer = _answer(found.answer)
        predicted = int(answer.predicted[0])
        return Explanation(answer, self.class_names[predicted] if self.class_names else
                           str(predicted), found.saliency, found.layer_names,
                           [Edge(*edge) for edge in found.edges], found.svg, found.pngs,
                           found.evidence, found.contributions, found.bias_contribution,
                           Parts(found.parts_half, found.parts_spread), found.contribution_map)

    def state_dict(self):
        """Parameters and buffers by name."""
        return self._network.state_dict()

    def _input(self, images):
        images = torch.as_tensor(images)
        return self._network.prepare(images) if images.dtype == torch.uint8 else images


def load(name, device="cpu"):
    """Loads a trained network: "zoo:mnist/dr-capsnet-rem", a weights file or a run folder."""
    return Network(name, device)


def zoo():
    """The names of the networks that come with remcaps, for load("zoo:NAME")."""
    return _remcaps.zoo_names()


def evaluate(network, split="test", *, data="", batch=128):
    """Accuracy, loss and confusion matrix on the network's data set, as a dict."""
    return json.loads(_opened(network).measure(split, data, None, batch, False))


def entropy(network, split="test", *, levels=None, data="", batch=128):
    """Parse trees of a split: entropy, keys and quantized accuracy, as a dict.

    levels: K; None: what the network's recipe says.
    """
    return json.loads(_opened(network).measure(split, data, levels, batch, True))


def _opened(network):
    return (network if isinstance(network, Network) else load(network))._network


def _answer(answer):
    return Answer(answer.lengths, answer.poses, answer.predicted, answer.couplings, answer.tree,
                  answer.layers)
