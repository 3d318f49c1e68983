"""Two models side by side: the child from layer to layer, the parent as far as it is looked at.

All examples are under way at once, in chunks, some of them to fit on and some held out. What the child has
computed so far is final, so each of its steps runs once; the parent runs once, too, and what is wanted of it
is held until it was looked at.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelkeeper.frontends.calibrating.examples import Examples
from modelkeeper.frontends.calibrating.parent_run import Lent
from modelkeeper.frontends.calibrating.regression import Numbers, Places
from modelkeeper.frontends.fit_tasks import FitTarget, FitTask
from modelkeeper.frontends.programs.names import layer_kind, vocabulary_name
from modelkeeper.frontends.programs.operations import signature
from modelkeeper.frontends.programs.passes import Engine, Pass
from modelkeeper.frontends.programs.program import Hole, Program
from modelkeeper.graph.vocabulary import ADD, BATCH_NORM, CHANNEL_NORMS, WINDOWED
from modelkeeper.weights import Array

CHUNK = 128  # examples that run at once
HELD_OUT = 0.2


@dataclass
class Chunk:
    """Some examples on their way through both models."""

    child: Pass
    part: int  # of the examples, by which the parent knows them
    inputs: list[Array]
    labels: Array | None


@dataclass(frozen=True)
class Site:
    """Where a layer is fitted, and to what."""

    step: int
    axis: int  # of the units
    target: FitTarget
    number: int  # the parent's value
    rest: int | None  # the child's value that is added to the layer's output
    shape: Sequence[int]  # of the layer's output, on the first examples
    extent: tuple[int, ...] = ()  # of the child's maps, if the parent's are larger or smaller


@dataclass(frozen=True)
class Models:
    """A child and its parent as programs, each with its tensors by name, and what runs both."""

    engine: Engine
    child: Program
    child_tensors: dict[str, Array]  # as they were before anything was fitted
    child_inputs: list[Array]  # all examples, in the order and layout that the program takes
    parent: Program
    parent_tensors: dict[str, Array]
    parent_inputs: list[Array]
    foreign: bool  # the parent's program came from elsewhere


class SideBySide:
    """Both models, side by side, as far as they have come."""

    def __init__(
        self,
        models: Models,
        lent: Lent,
        start: dict[str, Array],
        examples: Examples,
        count: int,
        end: float,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        """Split the examples into some to fit on and some held out; no step has run.

        Args:
            models: Both of them.
            lent: The parent, as it runs.
            start: The child's tensors to begin with.
            examples: For both models.
            count: So many of the examples are used.
            end: After this moment (of `time.perf_counter`) nothing more is fitted.
            frozen: Tensors of the child that keep their values.
        """
        self.program, self.parent, self._engine = models.child, models.parent, models.engine
        self._plain, self._lent = models.child_tensors, lent
        self.tensors, self.changed = dict(start), set[str]()
        self._end, self._frozen = end, frozen
        order = np.random.default_rng(0).permutation(len(examples))[:count]
        held = max(1, int(HELD_OUT * count))
        self._labels = examples.labels
        self._keep = set(self.program.outputs)
        fit, hold = (
            [chosen[start : start + CHUNK] for start in range(0, len(chosen), CHUNK)]
            for chosen in (order[held:], order[:held])
        )
        lent.begin([*fit, *hold])
        chunks = [self._chunk(n, part, models.child_inputs) for n, part in enumerate([*fit, *hold])]
        self._fit, self.hold = chunks[: len(fit)], chunks[len(fit) :]
        self._random = np.random.default_rng(1)
        self._waiting: Counter[int] = Counter()
        steps = range(len(self.program.steps))
        self._norms = [step for step in steps if self._kind(step) == BATCH_NORM]
        self._seen_to = set[int]()  # those of them that hold the statistics that they should

    @property
    def normed(self) -> bool:
        """Does the child have batch norms?"""
        return bool(self._norms)

    def expect(self, tasks: Sequence[FitTask]) -> None:
        """Keep the parent's values that these tasks look at, until they have."""
        named = [target.layer for task in tasks for target in task.targets]
        self._waiting = Counter(self.parent.layers[name] for name in named if name in self.parent.layers)
        self._lent.keep(list(self._waiting))

    def _chunk(self, number: int, part: Places, child_inputs: list[Array]) -> "Chunk":
        labels = self._labels[part] if self._labels is not None else None
        inputs = [array[part] for array in child_inputs]
        run = Pass(self._engine, self.program, self.tensors, inputs, self._keep)
        return Chunk(run, number, inputs, labels)

    def _site(self, task: FitTask, step: int) -> "Site | str":
        """The site where a layer is fitted: its step and its target in the parent; or why it cannot be."""
        first = self._fit[0].child
        shape = first.apply(step)[0].shape
        kind = self._kind(step)
        channels_first = kind in WINDOWED or (task.kind == "norm" and kind in CHANNEL_NORMS)
        axis = 1 if channels_first else len(shape) - 1
        own = self.program.layers[task.norm or task.layer]
        rest = self._rest(task, own, step)
        candidates = task.targets
        if rest is None and task.end not in (task.layer, task.norm):  # the other operand comes later
            candidates = candidates[-1:]
        best: Site | None = None
        for target in candidates:
            site = self._at(target, step, axis, shape, rest)
            if site is not None and not site.extent:
                return site
            best = best or site
        if best is None:
            return "the parent has nothing of this shape here"
        self._lent.shape(best.number)  # looking at others may have meant to start over
        return best

    def _at(
        self, target: FitTarget, step: int, axis: int, shape: Sequence[int], rest: int | None
    ) -> "Site | None":
        """The site of a layer for one target in the parent, if their shapes can be compared."""
        number = self.parent.layers.get(target.layer)
        if number is None:
            return None
        there = self._lent.shape(number)
        if len(there) != len(shape) or int(target.units.max(initial=-1)) >= there[axis]:
            return None
        if there[:axis] == shape[:axis] and there[axis + 1 :] == shape[axis + 1 :]:
            return Site(step, axis, target, number, rest, shape)
        maps = axis == 1 and len(shape) > 2
        return Site(step, axis, target, number, rest, shape, tuple(shape[2:])) if maps else None

    def _beside_lender(self, task: FitTask, site: "Site") -> "Site | None":
        """The site of a layer for the layer that lends its weights, if it is fitted to another one."""
        if site.target is task.targets[-1]:
            return None
        beside = self._at(task.targets[-1], site.step, site.axis, site.shape, None)
        self._lent.shape(site.number)
        return None if beside is None or beside.extent else beside

    def _kind(self, step: int) -> str:
        """The kind of layer that a step of the child is, in the words of the vocabulary; "" if it is none."""
        return layer_kind(self.program.steps[step].operation)

    def _rest(self, task: FitTask, own: int, step: int) -> int | None:
        """The other operand of the sum that a layer's output goes into, if it is there already."""
        if task.end in (task.layer, task.norm):
            return None
        total = self.program.maker(self.program.layers[task.end])
        added = self.program.steps[total]
        operands = [argument.v for argument in added.arguments if isinstance(argument, Hole)]
        if (
            vocabulary_name(added.operation) != ADD
            or len(added.arguments) != 2
            or own not in operands
            or len(operands) != 2
        ):
            return None
        rest = operands[1 - operands.index(own)]
        return rest if self.program.maker(rest) < step else None

    def _wanted(self, chunk: "Chunk", site: "Site") -> Numbers:
        """The parent's activations that a layer should compute, with its units on the last axis."""
        units = site.target.units
        factor = np.where(units < 0, 0.0, site.target.factor).astype(np.float32)
        computed = single(self._lent.value(chunk.part, site.number))
        if site.extent:
            computed = resized(computed, site.extent)
        wanted: Numbers = np.moveaxis(computed, site.axis, -1)[..., np.maximum(units, 0)] * factor
        return wanted

    def _advance(self, step: int) -> None:
        for chunk in (*self._fit, *self.hold):
            chunk.child.to(step)

    def _statistics_of(self, number: int) -> tuple[str, str] | None:
        """The names of a batch norm's running mean and variance, if it has any."""
        given = self._given_later(number)
        held = [given.get(name) for name in ("running_mean", "running_var")]
        mean, variance = (self._name_of(value) if isinstance(value, Hole) else "" for value in held)
        return (mean, variance) if mean and variance else None

    def _name_of(self, hole: Hole) -> str:
        """The name of the model's tensor that a hole stands for; "" if it is another value."""
        place = hole.v - len(self.program.inputs)
        return self.program.tensors[place].name if 0 <= place < len(self.program.tensors) else ""

    def _operands(self, task: FitTask, step: int) -> str | None:
        """The name of the argument that a projection reads, if its weight is the tensor we know."""
        given = self._given_later(step)
        for taken, weight in (("input", "weight"), ("mat1", "mat2"), ("self", "mat2"), ("self", "other")):
            held = given.get(weight)
            if taken in given and isinstance(held, Hole) and self._name_of(held) == task.weight:
                return taken
        return None

    def _given(self, step: int) -> dict[str, Any]:
        """The arguments of the step that is next, as they are on the first chunk."""
        return self._fit[0].child.arguments(step)

    def _given_later(self, step: int) -> dict[str, Any]:
        """The plain arguments of a step that has not run yet."""
        known = signature(self.program.steps[step].operation)
        assert known is not None
        return known.named(self.program.steps[step].arguments)

    def _epsilon(self, task: FitTask) -> float:
        step = self.program.maker(self.program.layers[task.norm or task.layer])
        return float(self._given_later(step).get("eps", 1e-5))

    def _set(self, name: str, value: Numbers) -> None:
        old = self._plain[name]
        self.changed.add(name)
        self.tensors[name] = value.reshape(old.shape).astype(old.dtype)

    def _double(self, name: str) -> Numbers:
        """A tensor of the child as it is now, in double precision."""
        return self.tensors[name].astype(np.float64)

    def outputs(self, chunk: "Chunk") -> tuple[Array, Array, Array]:
        """The outputs of the child, of the child before anything was fitted, and of the parent."""
        plain = Pass(self._engine, self.program, self._plain, chunk.inputs, self._keep)
        child, before = (_output(run) for run in (chunk.child, plain))
        return child, before, single(self._lent.output(chunk.part))


def _output(run: Pass) -> Array:
    run.to(len(run.program.steps))
    return single(run.value(run.program.outputs[0]))


def single(values: Array) -> Numbers:
    """Values in single precision, in which rows and maps are taken."""
    return values.astype(np.float32, copy=False)


def resized(maps: Numbers, extent: Sequence[int]) -> Numbers:
    """Resize maps (examples, units, ...): means over areas, or the nearest place where they grow."""
    for axis, size in enumerate(extent, 2):
        have = maps.shape[axis]
        if size != have:
            areas = [(n * have // size, -(-(n + 1) * have // size)) for n in range(size)]
            means = [maps.take(range(*area), axis).mean(axis, keepdims=True) for area in areas]
            maps = np.concatenate(means, axis)
    return maps
