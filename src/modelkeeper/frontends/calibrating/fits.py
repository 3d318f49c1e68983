"""Fit one layer of a child after the other: projections, and heads onto labels.

Each fit has rivals, and held-out examples decide: the gathered weights as they are, the gathered weights with
new statistics in the batch norm behind them, and the fit itself with several penalties.

A fit has to survive training, not only to be close. Three things see to that; without them fitted starts are
lost within a few steps and end below plain ones:

noise       Of several penalties the one is taken whose error is small and would not grow much with noisy
            inputs. A fit that lives on small differences of large numbers hands gradients that are as much
            too large to everything before it. (Without batch norms it gained nothing, and is left out.)
spread      Least squares shrinks what it cannot explain, and the layers behind have to make up for it. So
            where a norm can undo it, what comes out gets back the variance that is wanted, unless that makes
            it worse than it was before the fit.
statistics  Every batch norm on the way, fitted or not, holds those of what it is given (see `norms`).
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.calibrating.norms import NOTHING_TO_GAIN, RIDGES, ROWS, Norms
from modelkeeper.frontends.calibrating.regression import (
    Affine,
    Numbers,
    Rows,
    Solver,
    Sums,
    Window,
    at,
    cross_entropy,
    number,
    patches,
    spread,
    statistics,
)
from modelkeeper.frontends.calibrating.side_by_side import Chunk, Site, single
from modelkeeper.frontends.fit_tasks import FitTask, FittedLayer
from modelkeeper.frontends.programs.names import vocabulary_name
from modelkeeper.frontends.programs.program import references
from modelkeeper.graph.vocabulary import CONV, CURVES, WINDOWED, operation

NEARLY = 1.1  # of fits that are nearly as good the one with the largest penalty: it stands training best
NOISE = 0.3  # an error counts more by so many times what noise in the inputs would add to it
MOST_NUMBERS = 2**25  # of a regression's inputs: 128 MiB


@dataclass(frozen=True)
class _Place:
    """A projection where it is fitted: the argument that it reads, how, and its weight by groups."""

    task: FitTask
    site: Site
    taken: str
    window: Window | None
    weight: Numbers


class _Rival(NamedTuple):
    """A candidate for a layer's weights, and its error on held-out examples."""

    error: float
    how: str
    made: Affine


def _by_error(rival: _Rival) -> float:
    return rival.error


class Fitting(Norms):
    """Both models, and the means to fit the child's layers as it comes to them."""

    def fit(self, task: FitTask) -> FittedLayer:
        """Fit one layer of the child, if held-out examples say that it helps."""
        fitted = self._try(task)
        if fitted.how in ("kept", "statistics", "fitted"):
            self._seen_to.add(self.program.maker(self.program.layers[task.norm or task.layer]))
        for target in task.targets:
            number = self.parent.layers.get(target.layer, -1)
            self._waiting[number] -= 1
            if self._waiting[number] <= 0 and number not in self.parent.outputs:
                self._lent.release(number)
        return fitted

    def _try(self, task: FitTask) -> FittedLayer:
        if time.perf_counter() > self._end:
            return FittedLayer(task.layer, "", "out of time")
        value = self.program.layers.get(task.layer)
        step = self.program.maker(value) if value is not None else -1
        if value is None or step < 0:
            return FittedLayer(task.layer, "", "not a value of the model")
        self.renew(step)
        self._advance(step)
        if task.kind == "head":
            return self._head(task, step)
        if task.kind == "inserted":
            self._rephrase(task, step)
            return FittedLayer(task.layer, "", "statistics")
        site = self._site(task, step)
        if isinstance(site, str):
            return FittedLayer(task.layer, "", site)
        if task.kind == "norm":
            return self._norm(task, site)
        return self._projection(task, site)

    def _projection(self, task: FitTask, site: "Site") -> FittedLayer:
        follows = site.target.layer
        taken = self._operands(task, site.step)
        if taken is None:
            return FittedLayer(task.layer, follows, "its weight is computed from others")
        window = self._window(site.step)
        if isinstance(window, str):
            return FittedLayer(task.layer, follows, window)
        place = _Place(task, site, taken, window, self._grouped(task, window))
        prior = self._gathered(place)
        plan = self._behind(task, prior, None)
        lender = self._beside_lender(task, site)
        if lender is not None:
            rows = self._rows(self.hold[:1], replace(place, site=lender), rectified=False)
            error = rows.error(plan.weight, plan.bias)
            if error < NOTHING_TO_GAIN:  # it does what it did in the parent, which has proved its worth
                return FittedLayer(task.layer, lender.target.layer, "kept", error, error)
        rectified = self._rectified(task, site)
        fit, hold = (self._rows(chunks, place, rectified=rectified) for chunks in (self._fit, self.hold))
        before = hold.error(plan.weight, plan.bias)
        if before < NOTHING_TO_GAIN:
            return FittedLayer(task.layer, follows, "kept", before, before)
        rivals = [_Rival(before, "kept", plan)]
        if task.norm:
            fresh = self._behind(task, prior, fit.sums)
            rivals.append(_Rival(hold.error(fresh.weight, fresh.bias), "statistics", fresh))
        mapped = (site.target.units >= 0).reshape(place.weight.shape[:2])
        rivals += self._regressions(task, fit, hold, min(rivals, key=_by_error).made, mapped)
        best = min(rivals, key=_by_error)
        if best.how == "fitted" and task.norm:
            wide = spread(best.made, fit.sums, mapped)
            if (error := hold.error(wide.weight, wide.bias)) <= before:
                best = _Rival(error, best.how, wide)
        if best.how != "kept":
            self._write(task, prior, best.made if best.how == "fitted" else None, fit.sums)
        return FittedLayer(task.layer, follows, best.how, before, best.error)

    def _gathered(self, place: "_Place") -> Affine:
        """A projection with the weights that the plan gathered, in double precision."""
        shape = place.weight.shape[:2]
        bias = self._double(place.task.bias).reshape(shape) if place.task.bias else np.zeros(shape)
        return Affine(place.weight, bias)

    def _regressions(
        self, task: FitTask, fit: Rows, hold: Rows, base: Affine, mapped: Numbers
    ) -> "Iterator[_Rival]":
        """The ridge regression whose penalty stands training best, refined for rectified outputs."""
        solvers = [fit.solver(ridge, intercept=bool(task.bias or task.norm)) for ridge in RIDGES]
        solved = [solver.solve(fit.sums.cross, base.weight, base.bias) for solver in solvers]
        noise = NOISE if self.normed else 0.0
        errors = [number(hold.error(*fitted) * (1 + noise * fit.sums.strain(fitted[0]))) for fitted in solved]
        best = max(n for n, error in enumerate(errors) if error <= NEARLY * min(errors))
        sharper = fit.sharpen(solvers[best], solved[best], (base.weight, base.bias))
        for weight, bias in (solved[best], *sharper):
            made = Affine(np.where(mapped[..., None], weight, base.weight), np.where(mapped, bias, base.bias))
            if made.finite:
                yield _Rival(hold.error(made.weight, made.bias), "fitted", made)

    def _rectified(self, task: FitTask, site: "Site") -> bool:
        """Is the output read through a rectifier only? Then negative numbers are all the same."""
        end = (
            self.program.layers[task.end]
            if site.rest is not None
            else self.program.layers[task.norm or task.layer]
        )
        readers = [step for step in self.program.steps if end in references(step.arguments)]
        curves = {CURVES.get(vocabulary_name(step.operation)) for step in readers}
        return end not in self.program.outputs and curves == {"rectifier"}

    def _window(self, step: int) -> Window | str | None:
        """The window of a convolution; None for a linear layer; or why it is not fitted."""
        kind = self._kind(step)
        if kind not in WINDOWED:
            return None
        convolution = operation(vocabulary_name(self.program.steps[step].operation))
        if kind != CONV or "transposed" in convolution.arguments:  # it is one, or it may be
            return "a transposed convolution"
        given = self._given(step)
        kernel = tuple(given["weight"].shape[2:])
        rank = len(kernel)

        def per_axis(key: str, default: int) -> tuple[int, ...]:
            value = given.get(key, default)
            value = [value] if isinstance(value, int) else list(value)
            return tuple(value * rank if len(value) == 1 else value)

        dilation, padding = per_axis("dilation", 1), given.get("padding", 0)
        if padding == "same":
            if any(d * (k - 1) % 2 for k, d in zip(kernel, dilation, strict=True)):
                return "its padding is not symmetric"
            margins = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
        else:
            margins = (0,) * rank if padding == "valid" else per_axis("padding", 0)
        return Window(kernel, per_axis("stride", 1), margins, dilation, int(given.get("groups", 1)))

    def _grouped(self, task: FitTask, window: Window | None) -> Numbers:
        """A layer's weight as (groups, outputs, inputs), in double precision."""
        weight = self._double(task.weight)
        if task.flipped:
            weight = weight.T
        groups = window.groups if window is not None else 1
        return weight.reshape(groups, weight.shape[0] // groups, -1)

    def _rows(self, chunks: "list[Chunk]", place: "_Place", *, rectified: bool) -> Rows:
        """Rows of inputs and wanted outputs of a projection, sampled from these chunks."""
        groups, _, inputs = place.weight.shape
        most = min(max(ROWS[0], ROWS[1] * inputs), MOST_NUMBERS // (groups * inputs))
        total = sum(chunk.child.batch for chunk in self._fit)
        pieces = []
        for chunk in chunks:
            share = max(1, most * chunk.child.batch // total)  # the held-out part is as dense as the rest
            pieces.append(self._piece(chunk, place, share))
        read, wanted, rest = (np.concatenate(parts, 1) for parts in zip(*pieces, strict=True))
        return Rows(read, wanted, rest, rectified)

    def _piece(self, chunk: "Chunk", place: "_Place", share: int) -> tuple[Numbers, Numbers, Numbers]:
        """About so many rows of one chunk: inputs, wanted outputs, and what is added to the outputs."""
        groups, outputs, inputs = place.weight.shape
        site, window = place.site, place.window
        x, y = single(chunk.child.array(site.step, place.taken)), self._wanted(chunk, site)
        rest: Numbers = np.zeros((), np.float32)
        if site.rest is not None:
            rest = np.moveaxis(single(chunk.child.value(site.rest)), site.axis, -1)
        rest = np.broadcast_to(rest, y.shape)
        if window is None:
            x, y, rest = x.reshape(-1, inputs), y.reshape(-1, outputs), rest.reshape(-1, outputs)
            if len(x) > share:
                chosen = self._random.permutation(len(x))[:share]
                x, y, rest = x[chosen], y[chosen], rest[chosen]
            return x[None], y[None], rest[None]
        out = y.shape[1:-1]
        per_example = min(math.prod(out), -(-share // x.shape[0]))
        places = self._random.permutation(math.prod(out))[:per_example]
        wanted, added = (at(np.moveaxis(maps, -1, 1), places, groups) for maps in (y, rest))
        return patches(x, window, places, out), wanted, added

    def _behind(self, task: FitTask, made: Affine, sums: Sums | None) -> Affine:
        """Fold the norm behind a projection into it, with its own statistics or with new ones from sums."""
        if not task.norm:
            return made
        norm = {role: self._double(name).reshape(made.bias.shape) for role, name in task.norm_tensors}
        mean, variance = (norm["mean"], norm["variance"]) if sums is None else statistics(made, sums)
        scale = norm["gain"] / np.sqrt(variance + self._epsilon(task))
        return Affine(made.weight * scale[..., None], (made.bias - mean) * scale + norm["bias"])

    def _write(self, task: FitTask, prior: Affine, best: Affine | None, fit: Sums) -> None:
        """Write a fit into the tensors of the layer and its norm; None: only new statistics."""
        made = prior
        if best is not None:
            scale = np.ones_like(best.bias)
            if task.norm:
                # A norm undoes any scale, but by how much it divides decides how far a training step moves
                # what comes out. A fit is a difference of large terms: at the size of the weights it would
                # divide by far less than the parent's norm did, and a few steps would undo the fit.
                lent = self._double(dict(task.norm_tensors)["variance"]).reshape(scale.shape)
                _, made_here = statistics(best, fit)
                known = (lent > 0) & (made_here > 0)
                scale = np.where(known, np.sqrt(np.maximum(lent, 0) / np.maximum(made_here, 1e-30)), scale)
            made = Affine(best.weight * scale[..., None], prior.bias if task.norm else best.bias)
            weight = made.weight.reshape(-1, made.weight.shape[2])
            self._set(task.weight, weight.T if task.flipped else weight)
            if task.bias:
                self._set(task.bias, made.bias)
        if task.norm:
            names = dict(task.norm_tensors)
            mean, variance = statistics(made, fit)
            self._set(names["mean"], mean)
            self._set(names["variance"], variance)
            if best is not None:
                gain = np.sqrt(variance + self._epsilon(task)) / scale
                self._set(names["gain"], gain)
                self._set(names["bias"], best.bias + (mean - made.bias) / scale)

    def _head(self, task: FitTask, step: int) -> FittedLayer:
        """Fit a head that the parent does not have, by a ridge regression onto the classes."""
        named = self._operands(task, step)
        if self._labels is None:
            return FittedLayer(task.layer, "", "no labels")
        if (
            named is None
            or self._kind(step) in WINDOWED
            or self._labels.dtype.kind not in "iu"
            or self._labels.ndim != 1
        ):
            return FittedLayer(task.layer, "labels", "no linear layer onto classes")
        weight = self._grouped(task, None)
        classes = weight.shape[1]
        least, most = int(self._labels.min()), int(self._labels.max())
        if least < 0 or most >= classes:
            problem = f"labels go from {least} to {most}, the head has {classes}"
            raise CannotCalibrate(problem, "Give labels from 0 to the number of outputs less one")
        sides = []
        for chunks in (self._fit, self.hold):
            sums = Sums(1, weight.shape[2], classes)
            for chunk in chunks:
                x = single(chunk.child.array(step, named))
                if x.ndim != 2 or chunk.labels is None:
                    return FittedLayer(task.layer, "labels", "no linear layer onto classes")
                sums.add(x[None], np.eye(classes, dtype=np.float32)[chunk.labels][None])
            sides.append(sums)
        fit, hold = sides
        zero = np.zeros_like(weight), np.full(weight.shape[:2], 1 / classes)
        made = [Solver(fit, ridge, intercept=bool(task.bias)).solve(fit.cross, *zero) for ridge in RIDGES]
        errors = [hold.error(*fitted) for fitted in made]
        best, shift = made[errors.index(min(errors))]
        scale = self._sharpness(step, named, best, shift)
        start = self._double(task.bias) if task.bias else np.zeros(classes)
        before = hold.error(weight, start[None])
        self._set(task.weight, (scale * best[0]).T if task.flipped else scale * best[0])
        if task.bias:
            self._set(task.bias, scale * (shift - 1 / classes))
        return FittedLayer(task.layer, "labels", "fitted", before, min(errors))

    def _sharpness(self, step: int, named: str, weight: Numbers, bias: Numbers) -> float:
        """The factor for scores from 0 to 1 with which they serve best as logits."""

        def loss(scale: float) -> float:
            total = 0.0
            for chunk in self.hold:
                assert chunk.labels is not None
                x = chunk.child.array(step, named).astype(np.float64)
                total += cross_entropy(scale * (x @ weight[0].T + bias), chunk.labels) * len(x)
            return total

        return min((1.0, 2.0, 4.0, 8.0, 16.0), key=loss)
