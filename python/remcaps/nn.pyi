from typing import Any, Dict, Literal, Optional, Tuple, Union

import torch
from torch import Tensor
from torch.nn import Parameter

_Pair = Union[int, Tuple[int, int]]
_Device = Union[str, torch.device, None]
_Kernels = Literal["fused", "reference"]

class Conv2d(torch.nn.Conv2d):
    kernels: str
    def __init__(self, *arguments: Any, kernels: _Kernels = "fused", **options: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class PrimaryCaps(torch.nn.Module):
    conv: Conv2d
    types: int
    dim: int
    form: str
    epsilon: float
    def __init__(self, in_channels: int, types: int, kernel: _Pair, *, dim: int = 8,
                 stride: _Pair = 1, padding: _Pair = 0, groups: int = 1,
                 form: Literal["norm", "exponential"] = "norm", epsilon: float = 1e-6,
                 kernels: _Kernels = "fused", device: _Device = None,
                 dtype: Optional[torch.dtype] = None) -> None: ...
    def forward(self, map: Tensor) -> Tensor: ...

class _Routed(torch.nn.Module):
    weight: Parameter
    bias: Optional[Parameter]
    prior: Optional[Parameter]
    weight_std: float
    bias_mean: float
    options: Dict[str, Any]
    def reset_parameters(self) -> None: ...

class FcCaps(_Routed):
    routing: str
    shared_over: int
    def __init__(self, children: int, parents: int, child_dim: int = 8, parent_dim: int = 16, *,
                 routing: Literal["dynamic", "scaled-distance", "self-attention"] = "dynamic",
                 shared_over: int = 1, weight_std: float = 0.1, bias_mean: float = 0.1,
                 device: _Device = None, dtype: Optional[torch.dtype] = None,
                 **options: Any) -> None: ...
    def forward(self, children: Tensor, *, levels: Optional[int] = None,
                trace: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]: ...

class ConvCaps(_Routed):
    child_types: int
    def __init__(self, child_types: int, parent_types: int, kernel: int, *, stride: int = 1,
                 child_dim: int = 16, parent_dim: int = 16, weight_std: float = 0.1,
                 bias_mean: float = 0.1, device: _Device = None,
                 dtype: Optional[torch.dtype] = None, **options: Any) -> None: ...
    def forward(self, children: Tensor, height: int, width: int, *, levels: Optional[int] = None,
                trace: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]: ...
    @staticmethod
    def as_children(poses: Tensor) -> Tensor: ...
