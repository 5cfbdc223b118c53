"""Trained networks: calling, explaining and measuring them."""

import html
import json
import os
from typing import Dict, List, NamedTuple, Optional

import torch

from remcaps import _remcaps, drawing
from remcaps._call import call, described, tensor_of
from remcaps._remcaps import UsageError


class Answer(NamedTuple):
    """What a network says of B images."""

    lengths: torch.Tensor  # of the class capsules, [B, J]
    poses: torch.Tensor  # [B, J, D]
    predicted: torch.Tensor  # int64 [B]
    couplings: Optional[torch.Tensor]  # of the last routing layer, [B, I, J]; None without trace
    tree: Optional[torch.Tensor]  # levels of the couplings to the prediction, uint8 [B, I]
    layers: Dict[str, torch.Tensor]  # couplings of every routing layer, by its name

    def __repr__(self):
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in self._asdict().items()
                           if isinstance(value, torch.Tensor) and name != "predicted")
        return f"Answer(predicted={self.predicted.tolist()}, {shapes})"


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

    def __repr__(self):
        return (f"Explanation({self.class_name!r}, evidence={self.evidence:.3f}, "
                f"parts={self.parts}, {len(self.edges)} edges)")

    def _repr_html_(self):
        images = "".join(f'<img src="{uri}" style="margin-right: 8px">' for uri in self.pictures)
        name = html.escape(self.class_name)
        return (f"<div><b>{name}</b>: half of the evidence for it comes from "
                f"{self.parts.half} of {len(self.contributions):,} capsules</div>"
                f"<div>{images}</div>{self.svg}")

    def plot(self, figure=None):
        """The image, what the network looked at, and the parse tree, in a matplotlib figure."""
        return drawing.explanation(self, figure)


class Network:
    """A trained network; remcaps.load() makes it. Its answers have no gradients.

    name, architecture, class_names: what it was loaded as, "dr-capsnet", and [J] names or none.
    input: channels, height and width of its images.
    """

    def __init__(self, name, device="cpu"):
        self._network = call(_remcaps.Network, name=os.fspath(name), device=str(device))
        self.name = os.fspath(name)
        self.architecture = self._network.architecture()
        self.class_names = self._network.class_names()
        self.input = self._network.input()  # channels, height, width

    def __repr__(self):
        return f"remcaps.Network({self.name!r}, architecture={self.architecture!r})"

    def _repr_html_(self):
        state = self.state_dict().values()
        rows = {"network": self.architecture, "input": "x".join(map(str, self.input)),
                "classes": ", ".join(self.class_names),
                "parameters": f"{sum(t.numel() for t in state):,}",
                "not zero": f"{sum(int(t.count_nonzero()) for t in state):,}"}
        return drawing.html_table([self.name, ""], rows.items())

    def read(self, picture, *, invert=False):
        """A PNG or JPEG file of any size as the network's input, [1, C, H, W]."""
        return self._network.read(os.fspath(picture), invert)

    def prepare(self, pixels):
        """Pixels, uint8 [B, C, H, W], as the network's input: resized, cropped and normalised."""
        pixels = tensor_of("pixels", pixels)
        if pixels.dtype != torch.uint8 or pixels.dim() != 4:
            raise UsageError(f"pixels: {described(pixels)}; expected uint8 [B, C, H, W]")
        return self._network.prepare(pixels)

    def __call__(self, images, *, levels=None, trace=False):
        """Classifies images.

        images: pixels, uint8 [B, C, H, W], float32 that read() or prepare() made, or the name of a
            picture file.
        levels: quantize the couplings to K levels; the answer then has couplings and tree.
        trace: the answer has couplings.
        """
        return _answer(call(self._network.call, images=self._input(images), levels=levels,
                            trace=trace))

    def explain(self, image, *, levels=None, view="contributions"):
        """What the answer for one image rests on. image: one image, as __call__() takes it.

        levels: K of the parse tree; None: what the network's recipe says.
        view: what pictures and parse tree show: "contributions", or "couplings", the paper's view.
        """
        if view not in ("contributions", "couplings"):
            raise UsageError(f"view {view!r}; expected 'contributions' or 'couplings'")
        found = call(self._network.explain, image=self._input(image), levels=levels,
                     of_contributions=view == "contributions")
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
        if isinstance(images, (str, os.PathLike)):
            return self.read(images)
        given = tensor_of("images", images)
        images = self.prepare(given) if given.dtype == torch.uint8 else given
        if not images.is_floating_point() or images.shape[1:] != self.input or images.dim() != 4:
            wanted = ", ".join(map(str, self.input))
            raise UsageError(f"images: {described(given)}; expected uint8 pixels or prepared "
                             f"float32, [B, {wanted}]")
        return images


def load(name, device="cpu"):
    """Loads a trained network.

    name: "zoo:mnist/dr-capsnet-rem" (zoo() lists them), a weights file or a run's folder.
    device: "cpu", "cuda" or "cuda:1".
    """
    return Network(name, device)


def zoo():
    """The names of the networks that come with remcaps, for load("zoo:NAME")."""
    return _remcaps.zoo_names()


def evaluate(network, split="test", *, data="", batch=128):
    """Accuracy, loss and confusion matrix on the network's data set, as a dict.

    network: a Network, or a name that load() takes.
    split: "train", "validation", "test" or another of the data set.
    data: the folder of the data sets, as in data.load().
    """
    return _measured(network, split, None, data, batch, trees=False)


def entropy(network, split="test", *, levels=None, data="", batch=128):
    """Parse trees of a split: entropy, keys and quantized accuracy, as a dict.

    levels: K; None: what the network's recipe says. The other arguments are those of evaluate().
    """
    return _measured(network, split, levels, data, batch, trees=True)


def _measured(network, split, levels, data, batch, trees):
    opened = network if isinstance(network, Network) else load(network)
    return json.loads(call(opened._network.measure, split=split, data=os.fspath(data),
                           levels=levels, batch=batch, trees=trees))


def _answer(answer):
    return Answer(answer.lengths, answer.poses, answer.predicted, answer.couplings, answer.tree,
                  answer.layers)
