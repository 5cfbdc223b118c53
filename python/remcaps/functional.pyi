from typing import Literal, Optional, Tuple, Union, overload

from torch import Tensor

_Gradient = Literal["last", "full"]
_BiasIn = Literal["none", "every", "last"]
_Kernels = Literal["fused", "reference"]
_Pair = Union[int, Tuple[int, int]]
_Form = Literal["norm", "exponential"]

@overload
def dynamic_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                    iterations: int = 3, gradient: _Gradient = "last", bias_in: _BiasIn = "every",
                    epsilon: float = 1e-6, kernels: _Kernels = "fused",
                    levels: Optional[int] = None, trace: Literal[False] = False) -> Tensor: ...
@overload
def dynamic_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                    iterations: int = 3, gradient: _Gradient = "last", bias_in: _BiasIn = "every",
                    epsilon: float = 1e-6, kernels: _Kernels = "fused",
                    levels: Optional[int] = None,
                    trace: Literal[True]) -> Tuple[Tensor, Tensor]: ...
@overload
def scaled_distance_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                            iterations: int = 3, gradient: _Gradient = "last",
                            bias_in: _BiasIn = "every", mean: Literal["batch", "sample"] = "batch",
                            epsilon: float = 1e-6, kernels: _Kernels = "fused",
                            levels: Optional[int] = None,
                            trace: Literal[False] = False) -> Tensor: ...
@overload
def scaled_distance_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                            iterations: int = 3, gradient: _Gradient = "last",
                            bias_in: _BiasIn = "every", mean: Literal["batch", "sample"] = "batch",
                            epsilon: float = 1e-6, kernels: _Kernels = "fused",
                            levels: Optional[int] = None,
                            trace: Literal[True]) -> Tuple[Tensor, Tensor]: ...
@overload
def self_attention_routing(children: Tensor, weight: Tensor, prior: Tensor, *,
                           agreement: Literal["all", "self"] = "all",
                           prior_in: Literal["rounded", "exact"] = "rounded",
                           epsilon: float = 1e-7, levels: Optional[int] = None,
                           trace: Literal[False] = False) -> Tensor: ...
@overload
def self_attention_routing(children: Tensor, weight: Tensor, prior: Tensor, *,
                           agreement: Literal["all", "self"] = "all",
                           prior_in: Literal["rounded", "exact"] = "rounded",
                           epsilon: float = 1e-7, levels: Optional[int] = None,
                           trace: Literal[True]) -> Tuple[Tensor, Tensor]: ...
@overload
def conv_caps_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                      kernel: int, stride: int = 1, iterations: int = 3,
                      gradient: _Gradient = "last", bias_in: _BiasIn = "every",
                      epsilon: float = 1e-6, kernels: _Kernels = "fused",
                      levels: Optional[int] = None, trace: Literal[False] = False) -> Tensor: ...
@overload
def conv_caps_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *,
                      kernel: int, stride: int = 1, iterations: int = 3,
                      gradient: _Gradient = "last", bias_in: _BiasIn = "every",
                      epsilon: float = 1e-6, kernels: _Kernels = "fused",
                      levels: Optional[int] = None,
                      trace: Literal[True]) -> Tuple[Tensor, Tensor]: ...
def conv2d(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: _Pair = 1,
           padding: Union[_Pair, Literal["valid", "same"]] = 0, dilation: _Pair = 1,
           groups: int = 1, *, kernels: _Kernels = "fused") -> Tensor: ...
def squash(preactivation: Tensor, dim: int = -1, *, form: _Form = "norm",
           epsilon: float = 1e-6) -> Tensor: ...
def squash_to_capsules(map: Tensor, types: int, dim: int, *, form: _Form = "norm",
                       epsilon: float = 1e-6, kernels: _Kernels = "fused") -> Tensor: ...
def margin_loss(lengths: Tensor, labels: Tensor, *, m_plus: float = 0.9, m_minus: float = 0.1,
                lambda_: float = 0.5, kernels: _Kernels = "fused") -> Tensor: ...
