"""Fit a child's layers to its parent's activations, on a few of the user's own examples.

    calibrate(child, start, parent's program, parent's tensors, batches)  ->  Calibration

The child holds the weights of a plan already. Both models run side by side over all examples, the child from
layer to layer: when it comes to a layer with an aim, everything before it is final, so the layer is fitted by
ridge regression from its own actual inputs to what the parent computes, and the run goes on with the new
weights. One pass over each model, no gradient. A batch norm behind a layer gets the statistics of what the
layer now puts out, and a gain and bias with which the whole matches.

A part of the examples is not fitted on but judges: for each layer, whether the fit, the gathered weights
with new statistics, or the gathered weights as they were come closest; and in the end, whether the child as
a whole is closer than it was before. If not, it is left as it was.

Memory: the activations between two layers, for all examples; their number is cut so that these stay below
`memory` bytes. Regressions hold sums, not rows.
"""

import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.aims import Aim, Calibration, Fitted, Target
from modelkeeper.frontends.torch.capture import record
from modelkeeper.frontends.torch.examples import FEWEST, Examples, collect
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.operations import signature
from modelkeeper.frontends.torch.owned import owned_tensors
from modelkeeper.frontends.torch.pivots import pivots
from modelkeeper.frontends.torch.program import Hole, Pass, Program, check_run, references
from modelkeeper.frontends.torch.quiet import unwrap
from modelkeeper.frontends.torch.record import CPU, map_tensors
from modelkeeper.frontends.torch.regression import Rows, Solver, Sums, Window, at, patches
from modelkeeper.frontends.torch.weights import as_tensor, load

EXAMPLES = 2_048
STEPS = 100  # training steps whose time calibration may take, if no other limit is given; a step takes about
# four times as long as a pass over its examples
MEMORY = 2**30
CHUNK = 128  # examples that run at once
HELD_OUT = 0.2
RIDGES = (1e-4, 1e-2, 1e-1)  # the held-out examples choose
NOTHING_TO_GAIN = 1e-6  # an error of the gathered weights below which a layer is left alone
MOST_NUMBERS = 2**25  # of a regression's inputs: 128 MiB
ROWS = (4_096, 10)  # at least so many rows for a regression, and so many for each input

Ranks = Mapping[int, Any]  # by the parent's space, of its units
Start = Callable[[Ranks], tuple[Mapping[str, Any], Sequence[Aim]]]
Progress = Callable[[int, int, str], None]  # layers done, layers in all, the one at hand


def calibrate(
    child: nn.Module,
    start: Start,
    parent: Program | nn.Module,
    tensors: Mapping[str, Any],
    batches: Any,
    *,
    reads: Sequence[tuple[str, int]] = (),
    labels: Any = None,
    examples: int = EXAMPLES,
    seconds: float | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the layers of a child, in place.

    Args:
        child: The model, with the weights of a plan in it.
        start: From a ranking of the parent's units (by space) to the weights to start from and to what each
            layer should compute.
        parent: The parent's program, or the parent itself, which is then recorded. A program may come from
            anywhere: it is checked before it runs.
        tensors: The parent's tensors or arrays by name.
        batches: See `examples`, or what `collect` made of them. Both models have to run on them.
        reads: The parent's layers that read one space, and that space, to rank its units by.
        labels: Of the batches, if they do not hold them: for a head that the parent cannot teach.
        examples: At most so many are used.
        seconds: At most about so long. Default: as long as 100 training steps of the child take, about.
        memory: At most so many bytes of activations.
        progress: Called before each layer.

    Raises:
        CannotCalibrate: The examples do not serve. The child is unchanged, as after any other error.
        NoProgram: The child cannot be taken apart layer by layer.
        InvalidProgram: The parent's program does not run on the examples.
    """
    began = time.perf_counter()
    found = batches if isinstance(batches, Examples) else collect(batches, labels, examples)
    ours = record(child, example_of(child, found)).shortcuts_first()
    theirs = parent if isinstance(parent, Program) else record(parent, example_of(parent, found))
    plain = {name: each.tensor.detach().to(CPU) for each in owned_tensors(child) for name in each.names}
    lent = {
        each.name: as_tensor(each.name, tensors[each.name]) for each in theirs.tensors if each.name in tensors
    }
    if isinstance(parent, Program):  # not recorded here: it may come from anyone
        check_run(theirs, lent, [tensor[:CHUNK] for tensor in found.fitting(theirs)])
    weights, aims = start(pivots(theirs, lent, reads, found.fitting(theirs)))
    first = plain | {name: as_tensor(name, array).to(plain[name].dtype) for name, array in weights.items()}
    run = _Run(ours, plain, first, theirs, lent, found, began, seconds, memory)
    aims = sorted(aims, key=lambda aim: ours.layers.get(aim.layer, -1))
    run.expect(aims)
    fitted = []
    for number, aim in enumerate(aims):
        if progress is not None:
            progress(number, len(aims), aim.layer)
        fitted.append(run.fit(aim))
    if progress is not None:
        progress(len(aims), len(aims), "")
    measure, before, after = run.judge(fitted)
    changed = {name: run.tensors[name] for name in {*weights, *run.changed}}
    kept = after < before and all(torch.isfinite(each).all() for each in changed.values())
    if kept:
        load(child, changed)
    return Calibration(
        kept=kept,
        measure=measure,
        plain=before,
        calibrated=after,
        layers=tuple(fitted),
        examples=run.count,
        passed_over=found.passed_over,
        seconds=time.perf_counter() - began,
        memory=run.memory,
    )


def example_of(model: nn.Module, examples: Examples) -> Inputs:
    """Inputs to describe or record on: two examples, and no caches that a language model would hand out."""
    inputs = examples.inputs
    few = map_tensors(inputs.args, lambda t: t[:2]), map_tensors(dict(inputs.kwargs), lambda t: t[:2])
    extra = {"use_cache": False} if "use_cache" in inspect.signature(unwrap(model).forward).parameters else {}
    return Inputs(few[0], tuple({**extra, **few[1]}.items()))


@dataclass
class _Affine:
    """A projection as the rest of the model sees it, its norm folded in: (groups, outputs, inputs)."""

    weight: Tensor
    bias: Tensor


class _Run:
    """Both models, side by side, as far as they have come."""

    def __init__(
        self,
        ours: Program,
        plain: dict[str, Tensor],
        start: dict[str, Tensor],
        parent: Program,
        theirs: dict[str, Tensor],
        examples: Examples,
        began: float,
        seconds: float | None,
        memory: int,
    ) -> None:
        self.program, self.parent = ours, parent
        self._plain, self._theirs = plain, theirs
        self.tensors, self.changed = dict(start), set[str]()
        mine, other = examples.fitting(ours), examples.fitting(parent)
        first = min(len(examples), 64)
        ran = [
            self._try_out(program, weights, [tensor[:first] for tensor in taken])
            for program, weights, taken in ((ours, plain, mine), (parent, theirs, other))
        ]
        each = 4 * sum(peak for _, peak in ran) // first + 1
        cost = [seconds * 64 / first for seconds, _ in ran]
        self._end = began + (STEPS * 4 * cost[0] if seconds is None else seconds)
        left = max(0.0, self._end - time.perf_counter())
        self.count = min(len(examples), max(FEWEST, memory // each), max(64, int(left / sum(cost) * 64 / 2)))
        self.memory = self.count * each
        order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))[: self.count]
        held = max(1, int(HELD_OUT * self.count))
        self._labels = examples.labels
        self._keep: tuple[set[int], set[int]] = (set(ours.outputs), set(parent.outputs))
        self._fit = [self._passes(part, mine, other) for part in torch.split(order[held:], CHUNK)]
        self._hold = [self._passes(part, mine, other) for part in torch.split(order[:held], CHUNK)]
        self._generator = torch.Generator().manual_seed(1)
        self._waiting: Counter[int] = Counter()

    def expect(self, aims: Sequence[Aim]) -> None:
        """Which of the parent's values are still to be looked at? They are held until then."""
        named = [target.layer for aim in aims for target in aim.targets]
        self._waiting = Counter(self.parent.layers[name] for name in named if name in self.parent.layers)

    def _try_out(
        self, program: Program, tensors: dict[str, Tensor], inputs: list[Tensor]
    ) -> tuple[float, int]:
        """How long a pass takes, and how many numbers it holds at most."""
        began, one, peak = time.perf_counter(), Pass(program, tensors, inputs), 0
        for step in range(len(program.steps)):
            one.to(step + 1)
            peak = max(peak, sum(tensor.numel() for tensor in one.values.values()))
        return time.perf_counter() - began, peak

    def _passes(self, part: Tensor, mine: list[Tensor], other: list[Tensor]) -> "_Chunk":
        labels = self._labels[part] if self._labels is not None else None
        inputs = [tensor[part] for tensor in mine]
        return _Chunk(
            Pass(self.program, self.tensors, inputs, self._keep[0]),
            Pass(self.parent, self._theirs, [tensor[part] for tensor in other], self._keep[1]),
            inputs,
            labels,
        )

    # -- one layer ------------------------------------------------------------------------------

    def fit(self, aim: Aim) -> Fitted:
        """Fit one layer, if that serves."""
        found = self._try(aim)
        for target in aim.targets:
            number = self.parent.layers.get(target.layer, -1)
            self._waiting[number] -= 1
            if self._waiting[number] <= 0 and number not in self.parent.outputs:
                self._keep[1].discard(number)
                for chunk in (*self._fit, *self._hold):
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
        for chunk in (*self._fit, *self._hold):
            chunk.ours.to(step)
        if aim.kind == "head":
            return self._head(aim, step)
        site = self._site(aim, step)
        if isinstance(site, str):
            return Fitted(aim.layer, "", site)
        if aim.kind == "norm":
            return self._norm(aim, site)
        return self._projection(aim, site)

    def _site(self, aim: Aim, step: int) -> "_Site | str":
        """Where a layer is fitted, and to what; or why it cannot be."""
        first = self._fit[0].ours
        shape = first.apply(step)[0].shape
        conv = self.program.steps[step].operation.startswith("conv")
        axis = 1 if conv or (aim.kind == "norm" and self._channels_first(step)) else len(shape) - 1
        own = self.program.layers[aim.norm or aim.layer]
        rest = self._rest(aim, own, step)
        candidates = aim.targets
        if rest is None and aim.end not in (aim.layer, aim.norm):  # the other operand comes later
            candidates = candidates[-1:]
        for target in candidates:
            number = self.parent.layers.get(target.layer)
            if number is None:
                continue
            self._advance_parent(number)
            there = self._fit[0].theirs.value(number).shape
            same = (
                len(there) == len(shape)
                and there[:axis] == shape[:axis]
                and there[axis + 1 :] == shape[axis + 1 :]
            )
            if same and int(target.units.max(initial=-1)) < there[axis]:
                return _Site(step, axis, target, number, rest)
        return "the parent has nothing of this shape here"

    def _channels_first(self, step: int) -> bool:
        return self.program.steps[step].operation.partition(".")[0] in (
            "batch_norm",
            "group_norm",
            "instance_norm",
        )

    def _advance_parent(self, number: int) -> None:
        self._keep[1].add(number)
        for chunk in (*self._fit, *self._hold):
            if number not in chunk.theirs.values and number >= self.parent.first:
                if chunk.theirs.done > self.parent.maker(number):  # it has been and gone: start over
                    chunk.theirs = Pass(self.parent, self._theirs, chunk.theirs.inputs, self._keep[1])
                chunk.theirs.to(self.parent.maker(number) + 1)

    def _rest(self, aim: Aim, own: int, step: int) -> int | None:
        """The other operand of the sum that a layer's output goes into, if it is there already."""
        if aim.end in (aim.layer, aim.norm):
            return None
        total = self.program.maker(self.program.layers[aim.end])
        added = self.program.steps[total]
        operands = [each.v for each in added.arguments if isinstance(each, Hole)]
        if (
            added.operation != "add.Tensor"
            or len(added.arguments) != 2
            or own not in operands
            or len(operands) != 2
        ):
            return None
        rest = operands[1 - operands.index(own)]
        return rest if self.program.maker(rest) < step else None

    def _wanted(self, chunk: "_Chunk", site: "_Site") -> Tensor:
        """What should come out, with its units on the last axis."""
        units = torch.from_numpy(site.target.units)
        factor = torch.from_numpy(site.target.factor)
        theirs = chunk.theirs.value(site.number).movedim(site.axis, -1)
        return theirs[..., units.clamp_min(0)] * torch.where(units < 0, 0.0, factor).to(theirs.dtype)

    # -- projections ----------------------------------------------------------------------------

    def _projection(self, aim: Aim, site: "_Site") -> Fitted:
        named = self._operands(aim, site.step)
        if named is None:
            return Fitted(aim.layer, site.target.layer, "its weight is computed from others")
        window = self._window(site.step)
        if isinstance(window, str):
            return Fitted(aim.layer, site.target.layer, window)
        weight = self._grouped(aim, window)
        rectified = self._rectified(aim, site)
        fit, hold = (
            self._rows(chunks, site, named, window, weight, rectified) for chunks in (self._fit, self._hold)
        )
        mapped = torch.from_numpy(site.target.units >= 0).reshape(weight.shape[:2])
        bias = self.tensors[aim.bias].double() if aim.bias else torch.zeros(weight.shape[:2].numel())
        prior = _Affine(weight, bias.double().reshape(weight.shape[:2]))
        plan = self._behind(aim, prior, None)
        before = hold.error(plan.weight, plan.bias)
        if before < NOTHING_TO_GAIN:
            return Fitted(aim.layer, site.target.layer, "kept", before, before)
        found: list[tuple[float, str, _Affine]] = [(before, "kept", plan)]
        if aim.norm:
            fresh = self._behind(aim, prior, fit.sums)
            found.append((hold.error(fresh.weight, fresh.bias), "statistics", fresh))
        intercept = bool(aim.bias or aim.norm)
        base = min(found, key=lambda each: each[0])[2]
        solvers = [fit.solver(ridge, intercept=intercept) for ridge in RIDGES]
        solved = [solver.solve(fit.sums.cross, base.weight, base.bias) for solver in solvers]
        errors = [_number(hold.error(*each)) for each in solved]
        best_of = errors.index(min(errors))
        prior_of = base.weight, base.bias
        for weights in (solved[best_of], *fit.sharpen(solvers[best_of], solved[best_of], prior_of)):
            made = _Affine(*weights)
            made.weight = torch.where(mapped[..., None], made.weight, base.weight)
            made.bias = torch.where(mapped, made.bias, base.bias)
            if torch.isfinite(made.weight).all() and torch.isfinite(made.bias).all():
                found.append((hold.error(made.weight, made.bias), "fitted", made))
        after, how, best = min(found, key=lambda each: each[0])
        if how != "kept":
            self._write(aim, window, prior, best if how == "fitted" else None, fit.sums)
        return Fitted(aim.layer, site.target.layer, how, before, after)

    def _operands(self, aim: Aim, step: int) -> str | None:
        """The name of the argument that a projection reads, if its weight is the tensor we know."""
        found = signature(self.program.steps[step].operation)
        assert found is not None
        given = dict(
            zip((p.name for p in found.parameters), self.program.steps[step].arguments, strict=False)
        )
        for taken, weight in (("input", "weight"), ("mat1", "mat2"), ("self", "mat2"), ("self", "other")):
            held = given.get(weight)
            if taken in given and isinstance(held, Hole):
                place = held.v - len(self.program.inputs)
                if 0 <= place < len(self.program.tensors) and self.program.tensors[place].name == aim.weight:
                    return taken
        return None

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

    def _given(self, step: int) -> dict[str, Any]:
        return self._fit[0].ours.arguments(step)

    def _grouped(self, aim: Aim, window: Window | None) -> Tensor:
        """A layer's weight as (groups, outputs, inputs), in double precision."""
        weight = self.tensors[aim.weight].double()
        if aim.flipped:
            weight = weight.T
        groups = window.groups if window is not None else 1
        return weight.reshape(groups, weight.shape[0] // groups, -1)

    def _rectified(self, aim: Aim, site: "_Site") -> bool:
        """Is the output read through a rectifier only? Then negative numbers are all the same."""
        end = (
            self.program.layers[aim.end]
            if site.rest is not None
            else self.program.layers[aim.norm or aim.layer]
        )
        readers = [step.operation for step in self.program.steps if end in references(step.arguments)]
        return bool(readers) and end not in self.program.outputs and set(readers) <= {"relu.default"}

    def _rows(
        self,
        chunks: "list[_Chunk]",
        site: "_Site",
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

    def _behind(self, aim: Aim, made: _Affine, sums: Sums | None) -> _Affine:
        """A projection with the norm behind it: with the norm's own statistics, or new ones from sums."""
        if not aim.norm:
            return made
        norm = {role: self.tensors[name].double().reshape(made.bias.shape) for role, name in aim.norm_tensors}
        mean, variance = (norm["mean"], norm["variance"]) if sums is None else _statistics(made, sums)
        scale = norm["gain"] / (variance + self._epsilon(aim)).sqrt()
        return _Affine(made.weight * scale[..., None], (made.bias - mean) * scale + norm["bias"])

    def _epsilon(self, aim: Aim) -> float:
        step = self.program.maker(self.program.layers[aim.norm or aim.layer])
        return float(self._given_later(step).get("eps", 1e-5))

    def _given_later(self, step: int) -> dict[str, Any]:
        """The plain arguments of a step that has not run yet."""
        found = signature(self.program.steps[step].operation)
        assert found is not None
        return dict(zip((p.name for p in found.parameters), self.program.steps[step].arguments, strict=False))

    def _write(
        self, aim: Aim, window: Window | None, prior: _Affine, best: _Affine | None, fit: Sums
    ) -> None:
        """Put a fit into the layer and its norm; None: only new statistics."""
        made = prior
        if best is not None:
            scale = torch.ones_like(best.bias)
            if aim.norm:  # how large the weights before a norm are decides how fast they learn: keep it
                before, after = prior.weight.norm(dim=2), best.weight.norm(dim=2)
                scale = torch.where((before > 0) & (after > 0), before / after.clamp_min(1e-30), scale)
            made = _Affine(best.weight * scale[..., None], prior.bias if aim.norm else best.bias)
            weight = made.weight.flatten(0, 1)
            self._set(aim.weight, weight.T if aim.flipped else weight)
            if aim.bias:
                self._set(aim.bias, made.bias)
        if aim.norm:
            names = dict(aim.norm_tensors)
            mean, variance = _statistics(made, fit)
            self._set(names["mean"], mean)
            self._set(names["variance"], variance)
            if best is not None:
                gain = (variance + self._epsilon(aim)).sqrt() / scale
                self._set(names["gain"], gain)
                self._set(names["bias"], best.bias + (mean - made.bias) / scale)

    def _set(self, name: str, value: Tensor) -> None:
        old = self._plain[name]
        self.changed.add(name)
        self.tensors[name] = value.reshape(old.shape).to(old.dtype)

    # -- norms and heads ------------------------------------------------------------------------

    def _norm(self, aim: Aim, site: "_Site") -> Fitted:
        """A norm on its own: a line for each unit, from what it normalises to what the parent puts out."""
        operation = self.program.steps[site.step].operation.partition(".")[0]
        if operation not in ("batch_norm", "layer_norm", "group_norm", "rms_norm"):
            return Fitted(aim.layer, site.target.layer, f"a {operation}")
        fresh: dict[str, Tensor] = {}
        if aim.norm_tensors:
            fresh = self._seen(site)
        elif operation == "batch_norm":
            return Fitted(aim.layer, site.target.layer, "a batch norm without statistics of its own")
        gain = self.tensors[aim.weight].double().reshape(-1, 1, 1)
        bias = (
            self.tensors[aim.bias].double().reshape(-1, 1) if aim.bias else torch.zeros(len(gain), 1).double()
        )
        fit, hold = (self._lines(chunks, site, fresh, len(gain)) for chunks in (self._fit, self._hold))
        plain = self._lines(self._hold, site, {}, len(gain)) if fresh else hold
        before = plain.error(gain, bias)
        if before < NOTHING_TO_GAIN:
            return Fitted(aim.layer, site.target.layer, "kept", before, before)
        found = [(before, "kept", gain, bias)]
        if fresh:
            found.append((hold.error(gain, bias), "statistics", gain, bias))
        mapped = torch.from_numpy(site.target.units >= 0)
        for ridge in RIDGES:
            new, shift = Solver(fit, ridge, intercept=bool(aim.bias)).solve(fit.cross, gain, bias)
            new = torch.where(mapped[:, None, None], new, gain)
            shift = torch.where(mapped[:, None], shift, bias)
            if torch.isfinite(new).all() and torch.isfinite(shift).all():
                found.append((hold.error(new, shift), "fitted", new, shift))
        after, how, gain, bias = min(found, key=lambda each: each[0])
        if how != "kept":
            for role, name in aim.norm_tensors:
                if role in ("mean", "variance"):
                    self._set(name, fresh["running_mean" if role == "mean" else "running_var"])
            self._set(aim.weight, gain)
            if aim.bias:
                self._set(aim.bias, bias)
        return Fitted(aim.layer, site.target.layer, how, before, after)

    def _seen(self, site: "_Site") -> dict[str, Tensor]:
        """The statistics of what a batch norm is given."""
        count, total, squares = 0, torch.zeros(()).double(), torch.zeros(()).double()
        for chunk in self._fit:
            x = chunk.ours.arguments(site.step)["input"].movedim(1, -1).flatten(0, -2)
            count += len(x)
            total = total + x.sum(0, dtype=torch.float64)
            squares = squares + x.double().square().sum(0)
        mean = total / count
        return {
            "running_mean": mean.float(),
            "running_var": (squares / count - mean.square()).clamp_min(0).float(),
        }

    def _lines(self, chunks: "list[_Chunk]", site: "_Site", fresh: dict[str, Tensor], units: int) -> Sums:
        sums = Sums(units, 1, 1)
        for chunk in chunks:
            changed: dict[str, Any] = {"weight": None, "bias": None}
            if "bias" not in chunk.ours.arguments(site.step):
                del changed["bias"]
            x = chunk.ours.apply(site.step, **changed, **fresh)[0].movedim(site.axis, -1).flatten(0, -2)
            y = self._wanted(chunk, site).flatten(0, -2)
            if len(x) > ROWS[0]:
                chosen = torch.randperm(len(x), generator=self._generator)[: ROWS[0]]
                x, y = x[chosen], y[chosen]
            sums.add(x.T[..., None].float(), y.T[..., None].float())
        return sums

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
        for chunks in (self._fit, self._hold):
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
            for chunk in self._hold:
                assert chunk.labels is not None
                x = chunk.ours.arguments(step)[named].double()
                scores = scale * (x @ weight[0].T + bias)
                total += float(nn.functional.cross_entropy(scores, chunk.labels.long(), reduction="sum"))
            return total

        return min((1.0, 2.0, 4.0, 8.0, 16.0), key=loss)

    # -- the whole ------------------------------------------------------------------------------

    def judge(self, fitted: Sequence[Fitted]) -> tuple[str, float, float]:
        """How far the child is from what it should compute, before and after, on held-out examples."""
        outputs = [self._outputs(chunk) for chunk in self._hold]
        ours, plain, theirs = (torch.cat([each[n] for each in outputs]) for n in range(3))
        labels = [chunk.labels for chunk in self._hold]
        if all(each is not None for each in labels):
            y = torch.cat([each for each in labels if each is not None])
            if ours.ndim == 2 and y.ndim == 1 and not y.is_floating_point() and int(y.max()) < ours.shape[1]:
                loss = [float(nn.functional.cross_entropy(each.float(), y.long())) for each in (plain, ours)]
                return "cross-entropy on held-out labels", *_numbers(loss)
        if ours.shape == theirs.shape:
            scale = (theirs - theirs.mean(0)).double().square().sum().clamp_min(1e-30)
            error = [float((each - theirs).double().square().sum() / scale) for each in (plain, ours)]
            return "squared difference from the parent's outputs, over their variance", *_numbers(error)
        pairs = [(each.before, each.after) for each in fitted if each.before == each.before]
        means = [sum(each[n] for each in pairs) / max(1, len(pairs)) for n in range(2)]
        return "mean error of the fitted layers", *_numbers(means)

    def _outputs(self, chunk: "_Chunk") -> tuple[Tensor, Tensor, Tensor]:
        found = []
        plain = Pass(self.program, self._plain, chunk.inputs, self._keep[0])
        for one in (chunk.ours, plain, chunk.theirs):
            one.to(len(one.program.steps))
            found.append(one.value(one.program.outputs[0]))
        return found[0], found[1], found[2]


@dataclass
class _Chunk:
    """Some examples on their way through both models."""

    ours: Pass
    theirs: Pass
    inputs: list[Tensor]
    labels: Tensor | None


@dataclass(frozen=True)
class _Site:
    """Where a layer is fitted, and to what."""

    step: int
    axis: int  # of the units
    target: Target
    number: int  # the parent's value
    rest: int | None  # the child's value that is added to the layer's output


def _statistics(made: _Affine, sums: Sums) -> tuple[Tensor, Tensor]:
    """Mean and variance of what a projection puts out, from the sums over its inputs."""
    both = torch.cat([made.weight, made.bias[..., None]], 2)
    rows = max(1, sums.rows)
    mean = (both @ sums.inner[:, :, -1:])[..., 0] / rows
    square = ((both @ sums.inner) * both).sum(2) / rows
    return mean, (square - mean.square()).clamp_min(0)


def _number(value: float) -> float:
    """NaN counts as the worst."""
    return float("inf") if value != value else value


def _numbers(values: Sequence[float]) -> tuple[float, float]:
    first, second = map(_number, values)
    return first, second
