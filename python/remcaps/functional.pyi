from typing import Literal, Optional, Tuple, Union

from torch import Tensor

_Gradient = Literal["last", "full"]
_BiasIn = Literal["none", "every", "last"]
_Kernels = Literal["fused", "reference"]
_Form = Literal["norm", "exponential"]
_Routed = Union[Tensor, Tuple[Tensor, Tensor]]

def dynamic_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = ..., *,
                    iterations: int = ..., gradient: _Gradient = ..., bias_in: _BiasIn = ...,
                    epsilon: float = ..., kernels: _Kernels = ..., levels: Optional[int] = ...,
                    trace: bool = ...) -> _Routed: ...
def scaled_distance_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = ..., *,
                            iterations: int = ..., gradient: _Gradient = ...,
                            bias_in: _BiasIn = ..., mean: Literal["batch", "sample"] = ...,
                            epsilon: float = ..., kernels: _Kernels = ...,
                            levels: Optional[int] = ..., trace: bool = ...) -> _Routed: ...
def self_attention_routing(children: Tensor, weight: Tensor, prior: Tensor, *,
                           agreement: Literal["all", "self"] = ...,
                           prior_in: Literal["rounded", "exact"] = ...,
                           epsilon: float = ..., levels: Optional[int] = ...,
                           trace: bool = ...) -> _Routed: ...
def conv_caps_routing(children: Tensor, weight: Tensor, bias: Optional[Tensor] = ..., *,
                      kernel: int, stride: int = ..., iterations: int = ...,
                      gradient: _Gradient = ..., bias_in: _BiasIn = ..., epsilon: float = ...,
                      kernels: _Kernels = ..., levels: Optional[int] = ...,
                      trace: bool = ...) -> _Routed: ...
def squash(preactivation: Tensor, dim: int = ..., *, form: _Form = ...,
           epsilon: float = ...) -> Tensor: ...
def squash_to_capsules(map: Tensor, types: int, dim: int, *, form: _Form = ...,
                       epsilon: float = ..., kernels: _Kernels = ...) -> Tensor: ...
def margin_loss(lengths: Tensor, labels: Tensor, *, m_plus: float = ..., m_minus: float = ...,
                lambda_: float = ...) -> Tensor: ...
