import os
from typing import Any, Callable, Dict, List, Optional, Union

import torch

_Path = Union[str, "os.PathLike[str]"]
_Number = Union[int, float, None]
_OnEpoch = Callable[[Dict[str, _Number]], object]

def recipes() -> List[str]: ...
def train(recipe: _Path, *, out: _Path = "", data: _Path = "",
          device: Union[str, torch.device] = "cpu",
          on_epoch: Optional[_OnEpoch] = None, **overrides: Any) -> Dict[str, Any]: ...
def resume(run: _Path, *, data: _Path = "", device: Union[str, torch.device] = "cpu",
           epochs: Optional[int] = None,
           on_epoch: Optional[_OnEpoch] = None) -> Dict[str, Any]: ...
def metrics(run: _Path) -> Dict[str, List[_Number]]: ...
def summary(run: _Path) -> Dict[str, Any]: ...
