from typing import Any, Literal, Optional, Tuple, Union

import torch
from torch import Tensor
from torch.nn import Parameter

_Pair = Union[int, Tuple[int, int]]

class PrimaryCaps(torch.nn.Module):
    conv: torch.nn.Conv2d
    types: int
    dim: int
    def __init__(self, in_channels: int, types: int, kernel: _Pair, *, dim: int = ...,
                 stride: _Pair = ..., padding: _Pair = ..., groups: int = ...,
                 form: Literal["norm", "exponential"] = ..., epsilon: float = ...,
                 kernels: Literal["fused", "reference"] = ...) -> None: ...
    def forward(self, map: Tensor) -> Tensor: ...

class FcCaps(torch.nn.Module):
    weight: Parameter
    bias: Optional[Parameter]
    prior: Optional[Parameter]
    def __init__(self, children: int, parents: int, child_dim: int = ..., parent_dim: int = ..., *,
                 routing: Literal["dynamic", "scaled-distance", "self-attention"] = ...,
                 shared_over: int = ..., weight_std: float = ..., bias_mean: float = ...,
                 **options: Any) -> None: ...
    def forward(self, children: Tensor, *, levels: Optional[int] = ...,
                trace: bool = ...) -> Union[Tensor, Tuple[Tensor, Tensor]]: ...

class ConvCaps(torch.nn.Module):
    weight: Parameter
    bias: Optional[Parameter]
    def __init__(self, child_types: int, parent_types: int, kernel: int, *, stride: int = ...,
                 child_dim: int = ..., parent_dim: int = ..., weight_std: float = ...,
                 bias_mean: float = ..., **options: Any) -> None: ...
    def forward(self, children: Tensor, height: int, width: int, *, levels: Optional[int] = ...,
                trace: bool = ...) -> Union[Tensor, Tuple[Tensor, Tensor]]: ...
    @staticmethod
    def as_children(poses: Tensor) -> Tensor: ...
