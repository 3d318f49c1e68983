"""Which weights map these inputs to those outputs best? Ridge regression, from sums over rows.

    sums = Sums(groups, inputs, outputs)
    sums.add(rows of inputs, rows of outputs)        as often as there is data
    weight, bias = Solver(sums, ridge, intercept=True).solve(sums.cross, prior weight, prior bias)
    sums.error(weight, bias)                         relative to the variance of the outputs

The penalty is on the distance from a prior (the weights that the plan gathered), not from zero: directions
that the inputs never take (dead channels, constant batches) keep the prior, and so do differences of copies.
Products are taken in the rows' own precision, a block at a time, and summed in double precision.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]  # floats, or booleans
Places = np.ndarray[Any, np.dtype[np.int64]]

SPREAD = 4.0  # at most so many times what least squares lets through
ROWS = 4_096  # whose products are taken at once
BLOCK = 192  # unknowns of a triangular system that are solved at once


class Sums:
    """Products of inputs and outputs, summed over rows; one set for each group of a grouped projection."""

    def __init__(self, groups: int, inputs: int, outputs: int) -> None:
        self.rows = 0
        self.inner = np.zeros((groups, inputs + 1, inputs + 1))  # inputs and a one
        self.cross = np.zeros((groups, inputs + 1, outputs))
        self.squares = np.zeros((groups, outputs))

    def add(self, inputs: Numbers, outputs: Numbers) -> None:
        """Add rows to the sums. `inputs`: (groups, rows, inputs); `outputs`: (groups, rows, outputs)."""
        for start in range(0, inputs.shape[1], ROWS):
            x = with_one(inputs[:, start : start + ROWS])
            y = outputs[:, start : start + ROWS]
            self.rows += x.shape[1]
            self.inner += turned(x) @ x
            self.cross += turned(x) @ y
            self.squares += np.square(y).sum(1)

    @property
    def variances(self) -> Numbers:
        """The variance of each output about its mean: (groups, outputs)."""
        rows = max(1, self.rows)
        return np.maximum(self.squares / rows - np.square(self.cross[:, -1] / rows), 0)

    @property
    def _scale(self) -> float:
        """The outputs' variance, summed over units and rows, and never zero: errors are relative to it."""
        return max(float(self.rows * self.variances.sum()), 1e-12 * float(self.squares.sum()), 1e-30)

    def strain(self, weight: Numbers) -> float:
        """What noise as large as the inputs themselves would add to the error of a projection."""
        rows = max(1, self.rows)
        mean = self.inner[:, -1, :-1] / rows
        square = np.diagonal(self.inner, axis1=1, axis2=2)[:, :-1] / rows
        noise = np.maximum(square - np.square(mean), 0).mean(1)
        added = rows * float((noise[:, None] * np.square(weight).sum(2)).sum())
        return added / self._scale

    def error(self, weight: Numbers, bias: Numbers) -> float:
        """The squared error of a projection over the outputs' variance: 1 is no better than their means.

        `weight`: (groups, outputs, inputs); `bias`: (groups, outputs).
        """
        both = np.concatenate([weight, bias[..., None]], 2).astype(np.float64)
        change = (both @ self.inner * both).sum() - 2 * (both * turned(self.cross)).sum()
        return max(0.0, float(change + self.squares.sum())) / self._scale


@dataclass
class Affine:
    """A projection as the rest of the model sees it, its norm folded in: (groups, outputs, inputs)."""

    weight: Numbers
    bias: Numbers

    @property
    def finite(self) -> bool:
        """Are all of its numbers finite?"""
        return bool(np.isfinite(self.weight).all() and np.isfinite(self.bias).all())


class Solver:
    """Ridge regressions from the same inputs: factored once, solved for as many outputs as one likes."""

    def __init__(self, sums: Sums, ridge: float, *, intercept: bool) -> None:
        """`ridge` is relative to the inputs' mean variance. Without `intercept`, biases are kept."""
        inner, rows = sums.inner[:, :-1, :-1], max(1, sums.rows)
        self._sums, self._rows, self._intercept = sums, rows, intercept
        self._mean = sums.inner[:, -1:, :-1] / rows
        if intercept:  # centred: the intercept follows from the means and is not penalised
            inner = inner - rows * turned(self._mean) @ self._mean
        scale = np.maximum(np.diagonal(inner, axis1=1, axis2=2).mean(1), 1e-30)
        self._factor = _factored(inner + (ridge * scale)[:, None, None] * np.eye(inner.shape[1]))

    def solve(self, cross: Numbers, weight: Numbers, bias: Numbers) -> tuple[Numbers, Numbers]:
        """The projection of least error plus penalty on its distance from `weight` and `bias`, the prior.

        `cross`: sums of inputs times outputs; `weight`: (groups, outputs, inputs); `bias`: (groups, outputs).
        """
        prior = turned(np.concatenate([weight, bias[..., None]], 2).astype(np.float64))
        cross = cross - self._sums.inner @ prior  # what the prior leaves over
        left = cross[:, -1:] / self._rows
        cross = cross[:, :-1]
        if self._intercept:
            cross = cross - self._rows * turned(self._mean) @ left
        change = _solved(self._factor, cross)
        shift = (left - self._mean @ change)[:, 0] if self._intercept else np.zeros_like(left[:, 0])
        return turned(prior[:, :-1] + change), bias + shift


def _factored(matrices: Numbers) -> Numbers:
    """Lower triangular factors of positive definite matrices; of what is none, NaN: it is not used."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.full_like(matrices, np.nan)
        return np.concatenate([_factored(matrix[None]) for matrix in matrices])


def _solved(factor: Numbers, cross: Numbers) -> Numbers:
    """Solve L L^T x = cross by forward and backward substitution, a block of unknowns at a time."""
    size = factor.shape[1]
    blocks = [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]
    found = cross.copy()
    if not np.isfinite(factor).all():
        failed: Numbers = np.asarray(~np.isfinite(factor).all((1, 2)))
        found[failed] = np.nan
        factor = np.where(failed[:, None, None], np.eye(size), factor)
    for block in blocks:
        found[:, block] = np.linalg.solve(factor[:, block, block], found[:, block])
        found[:, block.stop :] -= factor[:, block.stop :, block] @ found[:, block]
    for block in reversed(blocks):
        found[:, block] = np.linalg.solve(turned(factor[:, block, block]), found[:, block])
        found[:, : block.start] -= turned(factor[:, block, : block.start]) @ found[:, block]
    return found


def statistics(made: Affine, sums: Sums) -> tuple[Numbers, Numbers]:
    """Mean and variance of what a projection puts out, from the sums over its inputs."""
    both = np.concatenate([made.weight, made.bias[..., None]], 2)
    rows = max(1, sums.rows)
    mean = (both @ sums.inner[:, :, -1:])[..., 0] / rows
    square = ((both @ sums.inner) * both).sum(2) / rows
    return mean, np.maximum(square - np.square(mean), 0)


def spread(made: Affine, sums: Sums, mapped: Numbers) -> Affine:
    """A projection with the variance that is wanted of its outputs, as far as that is within reason."""
    mean, variance = statistics(made, sums)
    factor = np.sqrt(sums.variances / np.maximum(variance, 1e-30)).clip(1.0, SPREAD)
    factor = np.where(mapped, factor, 1.0)
    return Affine(made.weight * factor[..., None], mean + factor * (made.bias - mean))


def number(value: float) -> float:
    """An error as a number that can be compared: NaN counts as infinity."""
    return float("inf") if value != value else value


def cross_entropy(scores: Numbers, classes: Places) -> float:
    """The mean cross-entropy of scores (rows, classes) with the classes that are right."""
    scores = scores.astype(np.float64)
    scores = scores - scores.max(1, keepdims=True)
    logarithms = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return -float(logarithms[np.arange(len(scores)), classes].mean())


def turned(matrices: Numbers) -> Numbers:
    """Swap the last two axes."""
    return np.swapaxes(matrices, -1, -2)


def with_one(rows: Numbers) -> Numbers:
    """Rows (groups, rows, inputs) with a one behind each."""
    return np.concatenate([rows, np.ones((*rows.shape[:2], 1), rows.dtype)], 2)


def in_rows(values: Numbers, axis: int) -> Numbers:
    """Values as rows of units, which are on this axis: (rows, units)."""
    last = np.moveaxis(values, axis, -1)
    return last.reshape(-1, last.shape[-1])


class Rows:
    """Inputs of a projection and what should come of them: `wanted`, with `rest` added to its output.

    `rectified`: only what is positive counts, of the outcome and of what is wanted. That is no least-squares
    problem, but a few in a row: where the wanted number is negative, any negative outcome is right, so it is
    replaced by the outcome of the last round, or by zero.
    """

    ROUNDS = 3

    def __init__(self, inputs: Numbers, wanted: Numbers, rest: Numbers, rectified: bool) -> None:
        """All of them (groups, rows, inputs or outputs)."""
        self.inputs, self._wanted, self._rest, self._rectified = inputs, wanted, rest, rectified
        self.sums = Sums(inputs.shape[0], inputs.shape[2], wanted.shape[2])
        self.sums.add(inputs, wanted - rest)
        seen = self._seen(wanted).astype(np.float64)
        self._scale = float(np.square(seen - seen.mean(1, keepdims=True)).sum())
        self._scale = max(self._scale, 1e-12 * float(np.square(seen).sum()), 1e-30)

    def error(self, weight: Numbers, bias: Numbers) -> float:
        """The squared error over the variance of what is wanted: 0 is perfect, 1 is no better than means."""
        error = self._seen(self._made(weight, bias) + self._rest) - self._seen(self._wanted)
        return float(np.square(error.astype(np.float64)).sum()) / self._scale

    def solver(self, ridge: float, *, intercept: bool) -> Solver:
        return Solver(self.sums, ridge, intercept=intercept)

    def sharpen(
        self, solver: Solver, made: tuple[Numbers, Numbers], prior: tuple[Numbers, Numbers]
    ) -> Iterator[tuple[Numbers, Numbers]]:
        """Refine a projection whose outputs are rectified: better and better ones, starting from `made`."""
        if self._rectified:
            x = turned(with_one(self.inputs))
            for _ in range(self.ROUNDS):
                outcome = self._made(*made) + self._rest
                sought = np.where(self._wanted > 0, self._wanted, np.minimum(outcome, 0)) - self._rest
                made = solver.solve((x @ sought).astype(np.float64), *prior)
                yield made

    def _made(self, weight: Numbers, bias: Numbers) -> Numbers:
        made: Numbers = self.inputs @ turned(weight.astype(np.float32)) + bias.astype(np.float32)[:, None]
        return made

    def _seen(self, outcome: Numbers) -> Numbers:
        return np.maximum(outcome, 0) if self._rectified else outcome


@dataclass(frozen=True)
class Window:
    """The window of a convolution: kernel, stride, padding and dilation for each spatial axis, and groups."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def patches(x: Numbers, window: Window, places: Places, out: Sequence[int]) -> Numbers:
    """The input patches of a convolution at some places of its output: (groups, rows, inputs of a group).

    `places`: numbers of positions in the output, whose sizes are `out`. Rows are examples times places, in
    the order of `at`.
    """
    x = np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in window.padding)])
    along_axes = np.unravel_index(places, tuple(out))
    index = np.zeros((len(places), 1), np.int64)
    for n, size in enumerate(x.shape[2:]):
        along = along_axes[n][:, None] * window.stride[n] + np.arange(window.kernel[n]) * window.dilation[n]
        index = (index[:, :, None] * size + along[:, None, :]).reshape(len(places), -1)
    taken = np.take(x.reshape(*x.shape[:2], -1), index, 2)  # examples, channels, places, kernel
    taken = taken.reshape(len(x), window.groups, -1, *taken.shape[2:]).transpose(1, 0, 3, 2, 4)
    return taken.reshape(window.groups, len(x) * len(places), -1)


def at(y: Numbers, places: Places, groups: int) -> Numbers:
    """The units of a map at some places of it: (groups, rows, units of a group)."""
    taken = np.take(y.reshape(*y.shape[:2], -1), places, 2).reshape(len(y), groups, -1, len(places))
    return taken.transpose(1, 0, 3, 2).reshape(groups, len(y) * len(places), -1)
