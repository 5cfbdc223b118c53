"""Quantized couplings, and the dictionary of parse trees that they make."""

import html
from typing import NamedTuple, Optional

import numpy
import torch

from remcaps import _remcaps, drawing
from remcaps._call import call, tensor_of
from remcaps._remcaps import Error


def quantize(couplings, levels=11):
    """Couplings rounded to K levels 0, 1/(K-1), ..., 1. A tensor for a tensor, else an array."""
    result = call(_remcaps.quantize, couplings=tensor_of("couplings", couplings), levels=levels)
    return result if isinstance(couplings, torch.Tensor) else result.numpy()


class Tree(NamedTuple):
    """A parse tree: the level, 0 to K-1, of each child's coupling to the predicted class."""

    count: int
    levels: Optional[numpy.ndarray]  # uint8 [I]; None if only the tree's hash was kept


class ParseTrees:
    """Counts the parse trees of each class, batch by batch.

    The tree of an image is the column of quantized couplings to its predicted class. Tensors and
    arrays are taken; arrays are returned.

        trees = remcaps.ParseTrees(levels=11)
        for images, labels in batches:
            poses, couplings = model(images, levels=11, trace=True)
            trees.add(couplings, poses.norm(dim=-1).argmax(1))
        trees.entropy
    """

    def __init__(self, levels=11):
        self._trees = call(_remcaps.ParseTrees, levels=levels)

    def add(self, couplings, predictions):
        """couplings: [B, I, J]. predictions: the class of each image, [B]."""
        self._trees.add(tensor_of("couplings", couplings), tensor_of("predictions", predictions))

    def __repr__(self):
        images = self._images()
        seen = f"{images:,} images, {self.entropy:.2f} bits" if images else "no images"
        return f"remcaps.ParseTrees(levels={len(self.levels)}, {seen})"

    def _images(self):
        try:
            return int(self.samples_per_class.sum())
        except Error:  # nothing was added yet
            return 0

    @property
    def levels(self):
        """The K values that couplings are rounded to."""
        return numpy.array(self._trees.centres(), dtype=numpy.float32)

    @property
    def samples_per_class(self):
        """Images of each predicted class."""
        return numpy.array(self._trees.samples_per_class())

    @property
    def entropy(self):
        """Mean over the classes, in bits."""
        return self._trees.report().entropy

    @property
    def entropy_std(self):
        """Standard deviation over the classes."""
        return self._trees.report().entropy_std

    @property
    def entropy_per_class(self):
        """In bits."""
        return numpy.array(self._trees.report().entropy_per_class)

    @property
    def keys_per_class(self):
        """Different trees of each class."""
        return numpy.array(self._trees.report().keys_per_class)

    @property
    def median_keys(self):
        """The median of keys_per_class."""
        return self._trees.report().median_keys

    def summary(self):
        """{column: [a number per class]}; pandas.DataFrame takes it."""
        return {"images": self.samples_per_class, "trees": self.keys_per_class,
                "entropy": self.entropy_per_class}

    def plot(self, figure=None, *, class_names=()):
        """The shares of the most frequent trees of each class, in a matplotlib figure."""
        return drawing.parse_trees(self, figure, class_names)

    def _repr_html_(self):
        if not self._images():
            return f"<code>{html.escape(repr(self))}</code>"
        columns = self.summary()
        rows = [(k, images, trees, f"{entropy:.2f}")
                for k, (images, trees, entropy) in enumerate(zip(*columns.values()))]
        return drawing.html_table(["class", "images", "trees", "bits"],
                                  [*rows, ("mean", "", "", f"{self.entropy:.2f}")])

    def most_frequent(self, class_index, limit=5):
        """The trees of a class as a list of Tree, at most `limit`, the most frequent first."""
        return [Tree(count, None if levels is None else levels.numpy())
                for count, levels in self._trees.most_frequent(class_index, limit)]
