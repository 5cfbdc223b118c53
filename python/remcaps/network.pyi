import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from numpy.typing import NDArray
from torch import Tensor

_Path = Union[str, "os.PathLike[str]"]
_Images = Union[Tensor, NDArray[Any]]

class Answer(NamedTuple):
    lengths: Tensor
    poses: Tensor
    predicted: Tensor
    couplings: Optional[Tensor]
    tree: Optional[Tensor]
    layers: Dict[str, Tensor]

class Edge(NamedTuple):
    layer: int
    start: int
    end: int
    coupling: float
    share: float

class Parts(NamedTuple):
    half: int
    spread: float

class Explanation(NamedTuple):
    answer: Answer
    class_name: str
    saliency: Optional[Tensor]
    layer_names: List[str]
    edges: List[Edge]
    svg: str
    pictures: List[str]
    evidence: float
    contributions: Tensor
    bias_contribution: float
    parts: Parts
    contribution_map: Optional[Tensor]
    def plot(self, figure: Optional[Any] = ...) -> Any: ...

class Network:
    name: str
    architecture: str
    class_names: List[str]
    input: Tuple[int, int, int]
    def __init__(self, name: _Path, device: str = ...) -> None: ...
    def read(self, picture: _Path, *, invert: bool = ...) -> Tensor: ...
    def prepare(self, pixels: _Images) -> Tensor: ...
    def __call__(self, images: _Images, *, levels: Optional[int] = ...,
                 trace: bool = ...) -> Answer: ...
    def explain(self, image: Union[_Path, _Images], *,
                levels: Optional[int] = ..., view: str = ...) -> Explanation: ...
    def state_dict(self) -> Dict[str, Tensor]: ...

def load(name: _Path, device: str = ...) -> Network: ...
def zoo() -> List[str]: ...
def evaluate(network: Union[Network, _Path], split: str = ..., *, data: str = ...,
             batch: int = ...) -> Dict[str, Any]: ...
def entropy(network: Union[Network, _Path], split: str = ..., *, levels: Optional[int] = ...,
            data: str = ..., batch: int = ...) -> Dict[str, Any]: ...
