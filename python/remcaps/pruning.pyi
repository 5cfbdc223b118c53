from typing import Any, Callable, Dict, Iterable, NamedTuple, Sequence, Tuple, Union

from torch import Tensor

_Parameters = Iterable[Tuple[str, Tensor]]
_Patterns = Union[str, Sequence[str]]
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
    def __init__(self, parameters: _Parameters, lambda_: float = 1e-4, *,
                 lambda_decay: float = 0.99, tolerance: float = 0.0, patience_epochs: int = -1,
                 plateau: float = 0.01, min_accuracy: float = 0.0, begin: int = 0, end: int = -1,
                 layers: _Patterns = (), exclude: _Patterns = ("*bias*",)) -> None: ...
    def after_backward(self) -> None: ...
    def after_epoch(
        self, evaluate: Callable[[], Union[_Loss, Tuple[_Loss, _Loss]]]) -> PruningReport: ...

class Snip(_Pruner):
    def __init__(self, parameters: _Parameters, gradients: Callable[[], object],
                 sparsity: float = 0.9, *, layers: _Patterns = (),
                 exclude: _Patterns = ("*bias*",)) -> None: ...

class Magnitude(_Pruner):
    def __init__(self, parameters: _Parameters, sparsity: float = 0.9, *,
                 initial_sparsity: float = 0.0, begin: int = 0, end: int = 50,
                 layers: _Patterns = (), exclude: _Patterns = ("*bias*",)) -> None: ...
    def after_epoch(self) -> PruningReport: ...
