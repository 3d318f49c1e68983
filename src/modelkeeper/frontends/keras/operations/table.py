"""Which function carries out which operation of programs?

    @carries_out("relu6.default")
    def _relu6(self): return ...            a tensor, or a list of them

Arguments go by ATen's names, `self` too; what a program leaves out has the default of the signature.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import keras
import numpy as np

from modelkeeper.frontends.programs.operations import ALLOWED

Function = Callable[..., Any]
FUNCTIONS: dict[str, Function] = {}  # by the name of the operation


def carries_out(*names: str) -> Callable[[Function], Function]:
    """Make a function the one that carries out these operations."""

    def register(function: Function) -> Function:
        for name in names:
            assert name in ALLOWED, name
            assert name not in FUNCTIONS, f"{name} has two functions"
            FUNCTIONS[name] = function
        return function

    return register


@cache
def available(dtype: str) -> str:
    """A dtype, or what the backend has in its place: JAX may have none of 64 bits."""
    made: str = keras.backend.standardize_dtype(keras.ops.convert_to_tensor(np.zeros(1, dtype)).dtype)
    return made


def axis_of(tensor: Any, dim: int) -> int:
    """An axis, counted from the front."""
    return dim % len(tensor.shape) if len(tensor.shape) else 0


def sizes(tensor: Any) -> list[int]:
    """The shape of a tensor as plain numbers."""
    return [int(size) for size in tensor.shape]


def per_axis(given: Any, rank: int) -> list[int]:
    """One number for each axis, from one for all or one for each."""
    numbers = list(given) if isinstance(given, (list, tuple)) else [given]
    return numbers * rank if len(numbers) == 1 else numbers
