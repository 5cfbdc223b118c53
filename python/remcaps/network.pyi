import os
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, Union

import torch
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
    def plot(self, figure: Optional[Any] = None) -> Any: ...

class Network:
    name: str
    architecture: str
    class_names: List[str]
    input: Tuple[int, int, int]
    def __init__(self, name: _Path, device: Union[str, torch.device] = "cpu") -> None: ...
    def read(self, picture: _Path, *, invert: bool = False) -> Tensor: ...
    def prepare(self, pixels: _Images) -> Tensor: ...
    def __call__(self, images: Union[_Path, _Images], *, levels: Optional[int] = None,
                 trace: bool = False) -> Answer: ...
    def explain(self, image: Union[_Path, _Images], *,
                levels: Optional[int] = None,
                view: Literal["contributions", "couplings"] = "contributions") -> Explanation: ...
    def state_dict(self) -> Dict[str, Tensor]: ...

def load(name: _Path, device: Union[str, torch.device] = "cpu") -> Network: ...
def zoo() -> List[str]: ...
def evaluate(network: Union[Network, _Path], split: str = "test", *, data: _Path = "",
             batch: int = 128) -> Dict[str, Any]: ...
def entropy(network: Union[Network, _Path], split: str = "test", *, levels: Optional[int] = None,
            data: _Path = "", batch: int = 128) -> Dict[str, Any]: ...
