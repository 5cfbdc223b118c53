"""Arguments of the extension module's functions, with errors of one line."""

import json
import re

import numpy
import torch

_TENSOR = ("a tensor", lambda value: isinstance(value, torch.Tensor))

# What pybind11 calls a type -> what is wanted, and whether a value is that.
_KINDS = {
    "at::Tensor": _TENSOR,
    "torch.Tensor": _TENSOR,  # newer PyTorch
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "float": ("a number", lambda value: hasattr(value, "__float__")),
    "int": ("an integer", lambda value: hasattr(value, "__index__")),
    "str": ("a string", lambda value: isinstance(value, str)),
    "Callable": ("a function", callable),
}


def call(function, **arguments):
    """Calls a function of the extension module; their order counts, not their names.

    A TypeError names the wrong argument; pybind11's prints all of them, tensors with their values.
    """
    try:
        return function(*arguments.values())
    except TypeError as error:
        if " arguments. The following argument types are supported" not in str(error):
            raise
        wanted = re.findall(r"arg\d+: (Optional\[)?([\w:.]+)", str(error))
    for (name, value), (optional, kind) in zip(arguments.items(), wanted):
        text, fits = _KINDS.get(kind, ("", lambda value: True))
        if not fits(value) and not (optional and value is None):
            raise TypeError(f"{name} is of type {type(value).__name__}; expected {text}")
    raise TypeError(f"{function.__name__}(): wrong arguments")


def tensor_of(name, values):
    """A tensor of values that may be an array or a list."""
    try:
        if isinstance(values, numpy.ndarray):  # a view where PyTorch takes one, else a copy
            values = numpy.require(values, requirements=["C", "W"])
        return torch.as_tensor(values)
    except (RuntimeError, TypeError, ValueError):
        raise TypeError(f"{name} is of type {type(values).__name__}; expected a tensor or an "
                        "array of numbers") from None


def described(tensor):
    """uint8 [1, 28, 28]"""
    return f"{str(tensor.dtype)[len('torch.'):]} {list(tensor.shape)}"


def assigned(overrides):
    """{"train": {"epochs": 3}} -> ["train.epochs=3"]"""
    found = []
    for key, value in overrides.items():
        if isinstance(value, dict):
            found += [f"{key}.{inner}" for inner in assigned(value)]
            continue
        try:  # numbers of numpy and PyTorch have item()
            found.append(f"{key}={json.dumps(value, default=lambda number: number.item())}")
        except (AttributeError, TypeError, ValueError):
            raise TypeError(f"{key} is of type {type(value).__name__}; expected what a recipe can "
                            "hold") from None
    return found
