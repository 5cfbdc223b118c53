from typing import Callable, Optional

import torch

class Adam(torch.optim.Adam):
    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...
