import os
from typing import Any, Union

_Path = Union[str, "os.PathLike[str]"]

def convert(source: _Path, out: _Path, recipe: _Path, **overrides: Any) -> None: ...
