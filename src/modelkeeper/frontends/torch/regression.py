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

import torch
from torch import Tensor
from torch.nn import functional

SPREAD = 4.0  # at most so many times what least squares lets through


class Sums:
    """Products of inputs and outputs, summed over rows; one set for each group of a grouped projection."""

    def __init__(self, groups: int, inputs: int, outputs: int) -> None:
        self.rows = 0
        self.inner = torch.zeros(groups, inputs + 1, inputs + 1, dtype=torch.float64)  # inputs and a one
        self.cross = torch.zeros(groups, inputs + 1, outputs, dtype=torch.float64)
        self.squares = torch.zeros(groups, outputs, dtype=torch.float64)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Add rows to the sums. `inputs`: (groups, rows, inputs); `outputs`: (groups, rows, outputs)."""
        for start in range(0, inputs.shape[1], 4_096):
            x = functional.pad(inputs[:, start : start + 4_096], (0, 1), value=1.0)
            y = outputs[:, start : start + 4_096]
            self.rows += x.shape[1]
            self.inner += x.transpose(1, 2) @ x
            self.cross += x.transpose(1, 2) @ y
            self.squares += y.square().sum(1)

    @property
    def variances(self) -> Tensor:
        """The variance of each output about its mean: (groups, outputs)."""
        rows = max(1, self.rows)
        return (self.squares / rows - (self.cross[:, -1] / rows).square()).clamp_min(0)

    @property
    def _scale(self) -> float:
        """The outputs' variance, summed over units and rows, and never zero: errors are relative to it."""
        return max(float(self.rows * self.variances.sum()), 1e-12 * float(self.squares.sum()), 1e-30)

    def strain(self, weight: Tensor) -> float:
        """What noise as large as the inputs themselves would add to the error of a projection."""
        rows = max(1, self.rows)
        mean = self.inner[:, -1, :-1] / rows
        noise = (self.inner.diagonal(dim1=1, dim2=2)[:, :-1] / rows - mean.square()).clamp_min(0).mean(1)
        added = rows * float((noise[:, None] * weight.double().square().sum(2)).sum())
        return added / self._scale

    def error(self, weight: Tensor, bias: Tensor) -> float:
        """The squared error of a projection over the outputs' variance: 1 is no better than their means.

        `weight`: (groups, outputs, inputs); `bias`: (groups, outputs).
        """
        both = torch.cat([weight.double(), bias.double()[..., None]], 2)
        change = (both @ self.inner * both).sum() - 2 * (both * self.cross.transpose(1, 2)).sum()
        return max(0.0, float(change + self.squares.sum())) / self._scale


@dataclass
class Affine:
    """A projection as the rest of the model sees it, its norm folded in: (groups, outputs, inputs)."""

    weight: Tensor
    bias: Tensor


class Solver:
    """Ridge regressions from the same inputs: factored once, solved for as many outputs as one likes."""

    def __init__(self, sums: Sums, ridge: float, *, intercept: bool) -> None:
        """`ridge` is relative to the inputs' mean variance. Without `intercept`, biases are kept."""
        inner, rows = sums.inner[:, :-1, :-1], max(1, sums.rows)
        self._sums, self._rows, self._intercept = sums, rows, intercept
        self._mean = sums.inner[:, -1:, :-1] / rows
        if intercept:  # centred: the intercept follows from the means and is not penalised
            inner = inner - rows * self._mean.transpose(1, 2) @ self._mean
        scale = inner.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-30)
        penalty = (ridge * scale)[:, None, None] * torch.eye(inner.shape[1], dtype=torch.float64)
        self._factor, _ = torch.linalg.cholesky_ex(inner + penalty)  # what fails is not finite, and not used

    def solve(self, cross: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The projection of least error plus penalty on its distance from `weight` and `bias`, the prior.

        `cross`: sums of inputs times outputs; `weight`: (groups, outputs, inputs); `bias`: (groups, outputs).
        """
        prior = torch.cat([weight.double(), bias.double()[..., None]], 2).transpose(1, 2)
        cross = cross - self._sums.inner @ prior  # what the prior leaves over
        left = cross[:, -1:] / self._rows
        cross = cross[:, :-1]
        if self._intercept:
            cross = cross - self._rows * self._mean.transpose(1, 2) @ left
        change = torch.cholesky_solve(cross, self._factor)
        shift = (left - self._mean @ change)[:, 0] if self._intercept else torch.zeros_like(left[:, 0])
        return (prior[:, :-1] + change).transpose(1, 2), bias.double() + shift


def statistics(made: Affine, sums: Sums) -> tuple[Tensor, Tensor]:
    """Mean and variance of what a projection puts out, from the sums over its inputs."""
    both = torch.cat([made.weight, made.bias[..., None]], 2)
    rows = max(1, sums.rows)
    mean = (both @ sums.inner[:, :, -1:])[..., 0] / rows
    square = ((both @ sums.inner) * both).sum(2) / rows
    return mean, (square - mean.square()).clamp_min(0)


def spread(made: Affine, sums: Sums, mapped: Tensor) -> Affine:
    """A projection with the variance that is wanted of its outputs, as far as that is within reason."""
    mean, variance = statistics(made, sums)
    factor = (sums.variances / variance.clamp_min(1e-30)).sqrt().clamp(1.0, SPREAD)
    factor = torch.where(mapped, factor, torch.ones_like(factor))
    return Affine(made.weight * factor[..., None], mean + factor * (made.bias - mean))


def number(value: float) -> float:
    """An error as a number that can be compared: NaN counts as infinity."""
    return float("inf") if value != value else value


class Rows:
    """Inputs of a projection and what should come of them: `wanted`, with `rest` added to its output.

    `rectified`: only what is positive counts, of the outcome and of what is wanted. That is no least-squares
    problem, but a few in a row: where the wanted number is negative, any negative outcome is right, so it is
    replaced by the outcome of the last round, or by zero.
    """

    ROUNDS = 3

    def __init__(self, inputs: Tensor, wanted: Tensor, rest: Tensor, rectified: bool) -> None:
        """All of them (groups, rows, inputs or outputs)."""
        self.inputs, self._wanted, self._rest, self._rectified = inputs, wanted, rest, rectified
        self.sums = Sums(inputs.shape[0], inputs.shape[2], wanted.shape[2])
        self.sums.add(inputs, wanted - rest)
        seen = self._seen(wanted).double()
        self._scale = float((seen - seen.mean(1, keepdim=True)).square().sum())
        self._scale = max(self._scale, 1e-12 * float(seen.square().sum()), 1e-30)

    def error(self, weight: Tensor, bias: Tensor) -> float:
        """The squared error over the variance of what is wanted: 0 is perfect, 1 is no better than means."""
        error = self._seen(self._made(weight, bias) + self._rest) - self._seen(self._wanted)
        return float(error.double().square().sum()) / self._scale

    def solver(self, ridge: float, *, intercept: bool) -> Solver:
        return Solver(self.sums, ridge, intercept=intercept)

    def sharpen(
        self, solver: Solver, made: tuple[Tensor, Tensor], prior: tuple[Tensor, Tensor]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Refine a projection whose outputs are rectified: better and better ones, starting from `made`."""
        if self._rectified:
            x = functional.pad(self.inputs, (0, 1), value=1.0).transpose(1, 2)
            for _ in range(self.ROUNDS):
                outcome = self._made(*made) + self._rest
                sought = torch.where(self._wanted > 0, self._wanted, outcome.clamp_max(0)) - self._rest
                made = solver.solve((x @ sought).double(), *prior)
                yield made

    def _made(self, weight: Tensor, bias: Tensor) -> Tensor:
        return self.inputs @ weight.float().transpose(1, 2) + bias.float()[:, None]

    def _seen(self, outcome: Tensor) -> Tensor:
        return outcome.clamp_min(0) if self._rectified else outcome


@dataclass(frozen=True)
class Window:
    """The window of a convolution: kernel, stride, padding and dilation for each spatial axis, and groups."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def patches(x: Tensor, window: Window, places: Tensor, out: Sequence[int]) -> Tensor:
    """The input patches of a convolution at some places of its output: (groups, rows, inputs of a group).

    `places`: numbers of positions in the output, whose sizes are `out`. Rows are examples times places, in
    the order of `at`.
    """
    margins = [side for pad in reversed(window.padding) for side in (pad, pad)]
    x = functional.pad(x, margins)
    index = torch.zeros(len(places), 1, dtype=torch.long)
    rest = places
    along_axes: list[Tensor] = []
    for size in reversed(list(out)):
        along_axes.insert(0, rest % size)
        rest = rest // size
    for n, size in enumerate(x.shape[2:]):
        along = (
            along_axes[n][:, None] * window.stride[n] + torch.arange(window.kernel[n]) * window.dilation[n]
        )
        index = (index[:, :, None] * size + along[:, None, :]).flatten(1)
    taken = x.flatten(2)[:, :, index]  # examples, channels, places, kernel
    taken = taken.reshape(len(x), window.groups, -1, *taken.shape[2:]).permute(1, 0, 3, 2, 4)
    return taken.flatten(1, 2).flatten(2)


def at(y: Tensor, places: Tensor, groups: int) -> Tensor:
    """The units of a map at some places of it: (groups, rows, units of a group)."""
    taken = y.flatten(2)[:, :, places].reshape(len(y), groups, -1, len(places))
    return taken.permute(1, 0, 3, 2).flatten(1, 2)
