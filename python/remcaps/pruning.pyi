from typing import Any, Callable, Dict, Iterable, NamedTuple, Sequence, Tuple, Union

from torch import Tensor

_Parameters = Iterable[Tuple[str, Tensor]]
_Loss = Union[float, Tensor]

class PruningReport(NamedTuple):
    pruned: bool
    threshold: float
    evaluations: int
    loss_before: float
    loss_after: float

class _Pruner:
    epoch: int
    def after_step(self) -> None: ...
    @property
    def masks(self) -> Dict[str, Tensor]: ...
    @property
    def sparsity(self) -> float: ...
    def state_dict(self) -> Dict[str, Any]: ...
    def load_state_dict(self, state: Dict[str, Any]) -> None: ...

class Rem(_Pruner):
    def __init__(self, parameters: _Parameters, lambda_: float = ..., *, lambda_decay: float = ...,
                 tolerance: float = ..., patience_epochs: int = ..., plateau: float = ...,
                 min_accuracy: float = ..., begin: int = ..., end: int = ...,
                 layers: Sequence[str] = ..., exclude: Sequence[str] = ...) -> None: ...
    def after_backward(self) -> None: ...
    def after_epoch(
        self, evaluate: Callable[[], Union[_Loss, Tuple[_Loss, _Loss]]]) -> PruningReport: ...

class Snip(_Pruner):
    def __init__(self, parameters: _Parameters, gradients: Callable[[], object],
                 sparsity: float = ..., *, layers: Sequence[str] = ...,
                 exclude: Sequence[str] = ...) -> None: ...

class Magnitude(_Pruner):
    def __init__(self, parameters: _Parameters, sparsity: float = ..., *,
                 initial_sparsity: float = ..., begin: int = ..., end: int = ...,
                 layers: Sequence[str] = ..., exclude: Sequence[str] = ...) -> None: ...
    def after_epoch(self) -> PruningReport: ...
