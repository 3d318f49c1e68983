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

import time

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.fit_tasks import Aim, Fitted
from modelkeeper.frontends.torch.norms import NOTHING_TO_GAIN, RIDGES, ROWS, Norms
from modelkeeper.frontends.torch.program import references
from modelkeeper.frontends.torch.regression import (
    Affine,
    Rows,
    Solver,
    Sums,
    Window,
    at,
    number,
    patches,
    spread,
    statistics,
)
from modelkeeper.frontends.torch.side_by_side import Chunk, Site

NEARLY = 1.1  # of fits that are nearly as good the one with the largest penalty: it stands training best
NOISE = 0.3  # an error counts more by so many times what noise in the inputs would add to it
MOST_NUMBERS = 2**25  # of a regression's inputs: 128 MiB


class Fitting(Norms):
    """Both models, and the means to fit the child's layers as it comes to them."""

    def fit(self, aim: Aim) -> Fitted:
        """Fit one layer, if that serves."""
        found = self._try(aim)
        if found.how in ("kept", "statistics", "fitted"):
            self._seen_to.add(self.program.maker(self.program.layers[aim.norm or aim.layer]))
        for target in aim.targets:
            number = self.parent.layers.get(target.layer, -1)
            self._waiting[number] -= 1
            if self._waiting[number] <= 0 and number not in self.parent.outputs:
                self._keep[1].discard(number)
                for chunk in (*self._fit, *self.hold):
                    chunk.theirs.release(number)
        return found

    def _try(self, aim: Aim) -> Fitted:
        why = "not a value of the model"
        if time.perf_counter() > self._end:
            return Fitted(aim.layer, "", "out of time")
        value = self.program.layers.get(aim.layer)
        step = self.program.maker(value) if value is not None else -1
        if value is None or step < 0:
            return Fitted(aim.layer, "", why)
        self.renew(step)
        self._advance(step)
        if aim.kind == "head":
            return self._head(aim, step)
        if aim.kind == "inserted":
            self._rephrase(aim, step)
            return Fitted(aim.layer, "", "statistics")
        site = self._site(aim, step)
        if isinstance(site, str):
            return Fitted(aim.layer, "", site)
        if aim.kind == "norm":
            return self._norm(aim, site)
        return self._projection(aim, site)

    def _projection(self, aim: Aim, site: "Site") -> Fitted:
        named = self._operands(aim, site.step)
        if named is None:
            return Fitted(aim.layer, site.target.layer, "its weight is computed from others")
        window = self._window(site.step)
        if isinstance(window, str):
            return Fitted(aim.layer, site.target.layer, window)
        weight = self._grouped(aim, window)
        bias = self.tensors[aim.bias].double() if aim.bias else torch.zeros(weight.shape[:2].numel())
        prior = Affine(weight, bias.double().reshape(weight.shape[:2]))
        plan = self._behind(aim, prior, None)
        lender = self._beside_lender(aim, site)
        if lender is not None:
            rows = self._rows(self.hold[:1], lender, named, window, weight, False)
            error = rows.error(plan.weight, plan.bias)
            if error < NOTHING_TO_GAIN:  # it does what it did in the parent, which has proved its worth
                return Fitted(aim.layer, lender.target.layer, "kept", error, error)
        rectified = self._rectified(aim, site)
        fit, hold = (
            self._rows(chunks, site, named, window, weight, rectified) for chunks in (self._fit, self.hold)
        )
        mapped = torch.from_numpy(site.target.units >= 0).reshape(weight.shape[:2])
        before = hold.error(plan.weight, plan.bias)
        if before < NOTHING_TO_GAIN:
            return Fitted(aim.layer, site.target.layer, "kept", before, before)
        found: list[tuple[float, str, Affine]] = [(before, "kept", plan)]
        if aim.norm:
            fresh = self._behind(aim, prior, fit.sums)
            found.append((hold.error(fresh.weight, fresh.bias), "statistics", fresh))
        intercept = bool(aim.bias or aim.norm)
        base = min(found, key=lambda each: each[0])[2]
        solvers = [fit.solver(ridge, intercept=intercept) for ridge in RIDGES]
        solved = [solver.solve(fit.sums.cross, base.weight, base.bias) for solver in solvers]
        noise = NOISE if self.normed else 0.0
        errors = [number(hold.error(*each) * (1 + noise * fit.sums.strain(each[0]))) for each in solved]
        best_of = max(n for n, error in enumerate(errors) if error <= NEARLY * min(errors))
        prior_of = base.weight, base.bias
        for weights in (solved[best_of], *fit.sharpen(solvers[best_of], solved[best_of], prior_of)):
            made = Affine(*weights)
            made.weight = torch.where(mapped[..., None], made.weight, base.weight)
            made.bias = torch.where(mapped, made.bias, base.bias)
            if torch.isfinite(made.weight).all() and torch.isfinite(made.bias).all():
                found.append((hold.error(made.weight, made.bias), "fitted", made))
        after, how, best = min(found, key=lambda each: each[0])
        if how == "fitted" and aim.norm:
            wide = spread(best, fit.sums, mapped)
            if (error := hold.error(wide.weight, wide.bias)) <= before:
                after, best = error, wide
        if how != "kept":
            self._write(aim, window, prior, best if how == "fitted" else None, fit.sums)
        return Fitted(aim.layer, site.target.layer, how, before, after)

    def _rectified(self, aim: Aim, site: "Site") -> bool:
        """Is the output read through a rectifier only? Then negative numbers are all the same."""
        end = (
            self.program.layers[aim.end]
            if site.rest is not None
            else self.program.layers[aim.norm or aim.layer]
        )
        readers = [step.operation for step in self.program.steps if end in references(step.arguments)]
        return bool(readers) and end not in self.program.outputs and set(readers) <= {"relu.default"}

    def _window(self, step: int) -> Window | str | None:
        """How a convolution looks at its input; None for a linear layer; or why it is not fitted."""
        name = self.program.steps[step].operation
        if not name.startswith("conv"):
            return None
        if name.partition(".")[0] not in ("conv1d", "conv2d", "conv3d"):
            return "a transposed convolution"
        given = self._given(step)
        kernel = tuple(given["weight"].shape[2:])
        rank = len(kernel)

        def each(key: str, default: int) -> tuple[int, ...]:
            value = given.get(key, default)
            value = [value] if isinstance(value, int) else list(value)
            return tuple(value * rank if len(value) == 1 else value)

        dilation, padding = each("dilation", 1), given.get("padding", 0)
        if padding == "same":
            if any(d * (k - 1) % 2 for k, d in zip(kernel, dilation, strict=True)):
                return "its padding is not symmetric"
            margins = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
        else:
            margins = (0,) * rank if padding == "valid" else each("padding", 0)
        return Window(kernel, each("stride", 1), margins, dilation, int(given.get("groups", 1)))

    def _grouped(self, aim: Aim, window: Window | None) -> Tensor:
        """A layer's weight as (groups, outputs, inputs), in double precision."""
        weight = self.tensors[aim.weight].double()
        if aim.flipped:
            weight = weight.T
        groups = window.groups if window is not None else 1
        return weight.reshape(groups, weight.shape[0] // groups, -1)

    def _rows(
        self,
        chunks: "list[Chunk]",
        site: "Site",
        taken: str,
        window: Window | None,
        weight: Tensor,
        rectified: bool,
    ) -> Rows:
        groups, outputs, inputs = weight.shape
        most = min(max(ROWS[0], ROWS[1] * inputs), MOST_NUMBERS // (groups * inputs))
        total = sum(chunk.ours.batch for chunk in self._fit)
        found: list[tuple[Tensor, ...]] = []
        for chunk in chunks:
            x, y = chunk.ours.arguments(site.step)[taken].float(), self._wanted(chunk, site).float()
            rest = torch.zeros(())
            if site.rest is not None:
                rest = chunk.ours.value(site.rest).movedim(site.axis, -1).float()
            rest = rest.expand(y.shape)
            share = max(1, most * chunk.ours.batch // total)  # the held-out part is as dense as the rest
            if window is None:
                x, y, rest = x.reshape(-1, inputs), y.reshape(-1, outputs), rest.reshape(-1, outputs)
                if len(x) > share:
                    chosen = torch.randperm(len(x), generator=self._generator)[:share]
                    x, y, rest = x[chosen], y[chosen], rest[chosen]
                found.append((x[None], y[None], rest[None]))
            else:
                out = y.shape[1:-1]
                each = min(out.numel(), -(-share // x.shape[0]))
                places = torch.randperm(out.numel(), generator=self._generator)[:each]
                seen = patches(x, window, places, out)
                found.append((seen, *(at(t.movedim(-1, 1), places, groups) for t in (y, rest))))
        seen, wanted, rest = (torch.cat(each, 1) for each in zip(*found, strict=True))
        return Rows(seen, wanted, rest, rectified)

    def _behind(self, aim: Aim, made: Affine, sums: Sums | None) -> Affine:
        """A projection with the norm behind it: with the norm's own statistics, or new ones from sums."""
        if not aim.norm:
            return made
        norm = {role: self.tensors[name].double().reshape(made.bias.shape) for role, name in aim.norm_tensors}
        mean, variance = (norm["mean"], norm["variance"]) if sums is None else statistics(made, sums)
        scale = norm["gain"] / (variance + self._epsilon(aim)).sqrt()
        return Affine(made.weight * scale[..., None], (made.bias - mean) * scale + norm["bias"])

    def _write(self, aim: Aim, window: Window | None, prior: Affine, best: Affine | None, fit: Sums) -> None:
        """Put a fit into the layer and its norm; None: only new statistics."""
        made = prior
        if best is not None:
            scale = torch.ones_like(best.bias)
            if aim.norm:
                # A norm undoes any scale, but by how much it divides decides how far a training step moves
                # what comes out. A fit is a difference of large terms: at the size of the weights it would
                # divide by far less than the parent's norm did, and a few steps would undo the fit.
                lent = self.tensors[dict(aim.norm_tensors)["variance"]].double().reshape(scale.shape)
                _, made_here = statistics(best, fit)
                known = (lent > 0) & (made_here > 0)
                scale = torch.where(known, (lent / made_here.clamp_min(1e-30)).sqrt(), scale)
            made = Affine(best.weight * scale[..., None], prior.bias if aim.norm else best.bias)
            weight = made.weight.flatten(0, 1)
            self._set(aim.weight, weight.T if aim.flipped else weight)
            if aim.bias:
                self._set(aim.bias, made.bias)
        if aim.norm:
            names = dict(aim.norm_tensors)
            mean, variance = statistics(made, fit)
            self._set(names["mean"], mean)
            self._set(names["variance"], variance)
            if best is not None:
                gain = (variance + self._epsilon(aim)).sqrt() / scale
                self._set(names["gain"], gain)
                self._set(names["bias"], best.bias + (mean - made.bias) / scale)

    def _head(self, aim: Aim, step: int) -> Fitted:
        """A head that the parent cannot teach: a ridge regression onto the classes."""
        named, operation = self._operands(aim, step), self.program.steps[step].operation
        if self._labels is None:
            return Fitted(aim.layer, "", "no labels")
        if (
            named is None
            or operation.startswith("conv")
            or self._labels.is_floating_point()
            or self._labels.ndim != 1
        ):
            return Fitted(aim.layer, "labels", "no linear layer onto classes")
        weight = self._grouped(aim, None)
        classes = weight.shape[1]
        least, most = int(self._labels.min()), int(self._labels.max())
        if least < 0 or most >= classes:
            problem = f"labels go from {least} to {most}, the head has {classes}"
            raise CannotCalibrate(problem, "Give labels from 0 to the number of outputs less one")
        sides = []
        for chunks in (self._fit, self.hold):
            sums = Sums(1, weight.shape[2], classes)
            for chunk in chunks:
                x = chunk.ours.arguments(step)[named].float()
                if x.ndim != 2 or chunk.labels is None:
                    return Fitted(aim.layer, "labels", "no linear layer onto classes")
                y = nn.functional.one_hot(chunk.labels.long(), classes).float()
                sums.add(x[None], y[None])
            sides.append(sums)
        fit, hold = sides
        zero = torch.zeros_like(weight), torch.full(weight.shape[:2], 1 / classes, dtype=torch.float64)
        made = [Solver(fit, each, intercept=bool(aim.bias)).solve(fit.cross, *zero) for each in RIDGES]
        errors = [hold.error(*each) for each in made]
        best, shift = made[errors.index(min(errors))]
        scale = self._sharpness(step, named, best, shift)
        start = self.tensors[aim.bias].double() if aim.bias else torch.zeros(classes).double()
        before = hold.error(weight, start[None])
        self._set(aim.weight, (scale * best[0]).T if aim.flipped else scale * best[0])
        if aim.bias:
            self._set(aim.bias, scale * (shift - 1 / classes))
        return Fitted(aim.layer, "labels", "fitted", before, min(errors))

    def _sharpness(self, step: int, named: str, weight: Tensor, bias: Tensor) -> float:
        """By how much to multiply scores from 0 to 1, so that they serve as logits."""

        def loss(scale: float) -> float:
            total = 0.0
            for chunk in self.hold:
                assert chunk.labels is not None
                x = chunk.ours.arguments(step)[named].double()
                scores = scale * (x @ weight[0].T + bias)
                total += float(nn.functional.cross_entropy(scores, chunk.labels.long(), reduction="sum"))
            return total

        return min((1.0, 2.0, 4.0, 8.0, 16.0), key=loss)
