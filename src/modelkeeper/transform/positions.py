"""What do learned positions become when there are more or fewer of them?

They are samples of something smooth, so they are sampled anew: by linear interpolation along a line, and over
a square grid, row by row and column by column, where the numbers of positions are squares. A few positions
before the grid (a class token and the like) stay as they are. Fewer positions than before are averages of
those they stand for, so that nothing is skipped.
"""

import math
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, np.dtype[np.float64]]
MOST_EXTRA = 4  # positions before a grid: class, distillation and register tokens


def resampling(parents: int, size: int) -> Matrix:
    """Resample positions: for each new one the weights of the old ones, size x parents, rows sum to one."""
    for extra in range(min(MOST_EXTRA, parents - 1, size - 1) + 1):
        if square(parents - extra) and square(size - extra):
            old, new = math.isqrt(parents - extra), math.isqrt(size - extra)
            matrix = np.zeros((size, parents))
            matrix[:extra, :extra] = np.eye(extra)
            matrix[extra:, extra:] = np.kron(line(old, new), line(old, new))
            return matrix
    return line(parents, size)


def square(size: int) -> bool:
    """Could so many positions be a square grid?"""
    return math.isqrt(size) ** 2 == size


def line(parents: int, size: int) -> Matrix:
    """Resample positions along one line: a tent over each new one, as wide as the coarser step."""
    step = parents / size
    centre = (np.arange(size) + 0.5) * step - 0.5
    tent = 1 - np.abs(np.arange(parents) - centre[:, None]) / max(1.0, step)
    weights = np.maximum(tent, 0.0)
    normalised: Matrix = weights / weights.sum(1, keepdims=True)
    return normalised
