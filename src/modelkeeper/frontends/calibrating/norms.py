"""Batch norms and other norms of a child: fitted on their own, or only brought up to date.

Every batch norm holds the statistics of what it is given before anything behind it is fitted. Training goes
by the statistics of a batch, and would else compute something that the layers were not fitted to.
"""

from typing import Any

import numpy as np

from modelkeeper.frontends.calibrating.regression import Affine, Numbers, Solver, Sums, in_rows, spread
from modelkeeper.frontends.calibrating.side_by_side import Chunk, SideBySide, Site, single
from modelkeeper.frontends.fit_tasks import FitTask, FittedLayer
from modelkeeper.frontends.programs.names import vocabulary_name
from modelkeeper.frontends.programs.program import Hole
from modelkeeper.graph.vocabulary import BATCH_NORM, MERGES, MULTIPLY, NORMS, REFITTED

RIDGES = (1e-4, 1e-2, 1e-1, 1.0)  # the held-out examples choose
NOTHING_TO_GAIN = 1e-6  # an error of the gathered weights below which a layer is left alone
ROWS = (4_096, 10)  # at least so many rows for a regression, and so many for each input


class Norms(SideBySide):
    """Both models side by side, and the means to fit norms."""

    def renew(self, end: int) -> None:
        """Set the running statistics of batch norms before a step, unless a fit has, from their inputs."""
        for number in self._norms:
            names = self._statistics_of(number)
            if names is None or not self._frozen.isdisjoint(names):
                continue
            if number < end and number not in self._seen_to:
                self._seen_to.add(number)
                self._advance(number)
                for name, value in zip(names, self._seen(number), strict=True):
                    self._set(name, value)

    def _rephrase(self, task: FitTask, step: int) -> None:
        """Set new statistics in a norm, and a gain and bias with which it computes the same as before."""
        names, epsilon = dict(task.norm_tensors), self._epsilon(task)
        old = {role: self._double(name) for role, name in task.norm_tensors}
        mean, variance = self._seen(step)
        slope = old["gain"] / np.sqrt(old["variance"] + epsilon)
        self._set(names["mean"], mean)
        self._set(names["variance"], variance)
        self._set(names["gain"], slope * np.sqrt(variance + epsilon))
        self._set(names["bias"], old["bias"] + slope * (mean - old["mean"]))

    def _norm(self, task: FitTask, site: "Site") -> FittedLayer:
        """Fit the gain and bias of a norm: a line for each unit, from normalised to the parent's outputs."""
        name, kind = vocabulary_name(self.program.steps[site.step].operation), self._kind(site.step)
        scaled = self._scaled(task, site.step) if MERGES.get(name) == MULTIPLY else ""
        if kind not in NORMS & REFITTED and not scaled:
            return FittedLayer(task.layer, site.target.layer, f"a {name}")
        fresh: dict[str, Numbers] = {}
        if task.norm_tensors:
            fresh = dict(zip(("running_mean", "running_var"), self._seen(site.step), strict=True))
        elif kind == BATCH_NORM:
            return FittedLayer(task.layer, site.target.layer, "a batch norm without statistics of its own")
        gain = self._double(task.weight).reshape(-1, 1, 1)
        bias = self._double(task.bias).reshape(-1, 1) if task.bias else np.zeros((len(gain), 1))
        fit, hold = (self._lines(chunks, site, fresh, len(gain), scaled) for chunks in (self._fit, self.hold))
        plain = self._lines(self.hold, site, {}, len(gain)) if fresh else hold
        before = plain.error(gain, bias)
        if before < NOTHING_TO_GAIN:
            return FittedLayer(task.layer, site.target.layer, "kept", before, before)
        rivals = [(before, "kept", gain, bias)]
        if fresh:
            rivals.append((hold.error(gain, bias), "statistics", gain, bias))
        mapped = site.target.units >= 0
        for ridge in RIDGES:
            new, shift = Solver(fit, ridge, intercept=bool(task.bias)).solve(fit.cross, gain, bias)
            made = Affine(np.where(mapped[:, None, None], new, gain), np.where(mapped[:, None], shift, bias))
            if made.finite:
                rivals.append((hold.error(made.weight, made.bias), "fitted", made.weight, made.bias))
        after, how, gain, bias = min(rivals, key=lambda rival: rival[0])
        if how == "fitted" and task.bias:
            wide = spread(Affine(gain, bias), fit, mapped[:, None])
            if (error := hold.error(wide.weight, wide.bias)) <= before:
                after, gain, bias = error, wide.weight, wide.bias
        if how != "kept":
            for role, name in task.norm_tensors:
                if role in ("mean", "variance"):
                    self._set(name, fresh["running_mean" if role == "mean" else "running_var"])
            self._set(task.weight, gain)
            if task.bias:
                self._set(task.bias, bias)
        return FittedLayer(task.layer, site.target.layer, how, before, after)

    def _scaled(self, task: FitTask, step: int) -> str:
        """The argument that a norm's gain multiplies, if the norm is written out as a product; else ""."""
        given = self._given_later(step)
        names = [name for name in ("self", "other") if isinstance(given.get(name), Hole)]
        for name, other in zip(names, reversed(names), strict=True):
            if (
                self._name_of(given[other]) == task.weight
                and name != other
                and len(self._given(step)[name].shape) > 1
            ):
                return name
        return ""

    def _seen(self, step: int) -> tuple[Numbers, Numbers]:
        """Mean and variance of a batch norm's inputs, over the examples to fit on."""
        count, total, squares = 0, np.zeros(()), np.zeros(())
        for chunk in self._fit:
            x = in_rows(chunk.child.array(step, "input"), 1).astype(np.float64)
            count += len(x)
            total = total + x.sum(0)
            squares = squares + np.square(x).sum(0)
        mean = total / count
        return single(mean), single(np.maximum(squares / count - np.square(mean), 0))

    def _lines(
        self,
        chunks: "list[Chunk]",
        site: "Site",
        fresh: dict[str, Numbers],
        units: int,
        scaled: str = "",
    ) -> Sums:
        """Sums for a regression from a norm without gain and bias; `scaled`: its argument, if a product."""
        sums = Sums(units, 1, 1)
        for chunk in chunks:
            given = chunk.child.arguments(site.step)
            changed: dict[str, Any] = {name: None for name in ("weight", "bias") if name in given}
            run = chunk.child
            x = run.array(site.step, scaled) if scaled else run.apply(site.step, **changed, **fresh)[0]
            x, y = in_rows(single(x), site.axis), in_rows(self._wanted(chunk, site), -1)
            if len(x) > ROWS[0]:
                chosen = self._random.permutation(len(x))[: ROWS[0]]
                x, y = x[chosen], y[chosen]
            sums.add(x.T[..., None], y.T[..., None])
        return sums
