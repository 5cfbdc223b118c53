from typing import Dict, List, NamedTuple

from torch import Tensor

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
def load(name: str, *, data: str = ..., validation: int = ...) -> DataSet: ...
