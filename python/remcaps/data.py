"""Data sets as tensors."""

import os
from typing import Dict, List, NamedTuple

import torch

from remcaps import _remcaps
from remcaps._call import call, described


class Split(NamedTuple):
    images: torch.Tensor  # uint8 [N, C, H, W]
    labels: torch.Tensor  # int64 [N]

    def __repr__(self):
        return f"Split(images {described(self.images)}, labels {described(self.labels)})"


class DataSet(NamedTuple):
    name: str
    class_names: List[str]
    train: Split
    validation: Split
    test: Split
    splits: Dict[str, Split]  # all splits that have images, by name


def names():
    """The data sets that load() knows."""
    return _remcaps.dataset_names()


def load(name, *, data="", folder="", validation=-1):
    """Reads a data set: images uint8 [N, C, H, W], labels int64 [N].

    name: one of names(); "folder" is any folder of pictures in class sub-folders.
    data: the folder of the data sets; "": $REMCAPS_DATA or ~/.cache/remcaps, and for Fashion-MNIST
        Debian's package.
    folder: the folder of this data set, if it is not in `data`.
    validation: how many training images validate; -1: the data set's own rule.
    """
    loaded = call(_remcaps.load_dataset, name=name, data=os.fspath(data),
                  folder=os.fspath(folder), validation=validation)
    splits = {}
    for split in loaded.split_names():
        part = loaded.split(split)
        splits[split] = Split(part.images, part.labels)
    empty = Split(torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
    return DataSet(loaded.name, loaded.class_names, splits.get("train", empty),
                   splits.get("validation", empty), splits.get("test", empty), splits)
