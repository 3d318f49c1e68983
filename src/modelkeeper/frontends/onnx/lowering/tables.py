"""Is a table of numbers a parameter? ONNX does not say, where it is added or multiplied number by number.

It is none if nobody trains such numbers: masks (zeros, ones, and what is as large as minus infinity), and the
cosines and sines of rotary positions, which come in pairs whose squares sum to one.
"""

import math

import numpy as np

from modelkeeper.frontends.onnx.lowering.entries import Stored
from modelkeeper.frontends.onnx.lowering.walk import Lowering
from modelkeeper.weights import Array

LARGEST = 1 << 24  # numbers of a table that is looked at
HUGE = 1e4  # no trained number is as large: what masks are filled with


def is_table(low: Lowering, stored: Stored) -> bool:
    """Is it a mask, or a table of rotary positions?"""
    if sum(size > 1 for size in stored.shape) < 2 or math.prod(stored.shape) > LARGEST:
        return False  # a number for each unit, or a matrix
    numbers = np.asarray(low.array(stored), np.float64)
    return is_mask(numbers) or _is_rotary(low, stored, numbers)


def is_mask(numbers: Array) -> bool:
    """Does a table hold zeros, ones, and numbers that are as good as infinite, at least two kinds of them?"""
    plain = bool(np.all((numbers == 0) | (numbers == 1) | (np.abs(numbers) >= HUGE)))
    return plain and bool(np.any(numbers != numbers.flat[0]))  # all the same: a parameter, not yet trained


def _is_rotary(low: Lowering, stored: Stored, numbers: Array) -> bool:
    """Is there another table of this shape, so that both are the cosines and sines of the same angles?"""
    if np.abs(numbers).max(initial=0) > 1 + 1e-6:
        return False
    for name, tensor in low.model.tensors.items():
        if name != stored.name and tuple(tensor.dims) == stored.shape:
            other = np.asarray(low.model.array(name), np.float64)
            if np.allclose(numbers**2 + other**2, 1, atol=1e-2):
                return True
    return False
