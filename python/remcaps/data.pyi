import os
from typing import Dict, List, NamedTuple, Union

from torch import Tensor

_Path = Union[str, "os.PathLike[str]"]

class Split(NamedTuple):
    images: Tensor
    labels: Tensor

class DataSet(NamedTuple):
    name: str
    class_names: List[str]
    train: Split
    validation: Split
    test: Split
    splits: Dict[str, Split]

def names() -> List[str]: ...
def load(name: str, *, data: _Path = "", folder: _Path = "",
         validation: int = -1) -> DataSet: ...
