"""Two models side by side: the child from layer to layer, the parent as far as it is looked at.

All examples are under way at once, in chunks, some of them to fit on and some held out. What the child has
computed so far is final, so each of its steps runs once; the parent runs once, too, and what is wanted of it
is held until it was looked at.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from modelkeeper.frontends.fit_tasks import Aim, Target
from modelkeeper.frontends.torch.examples import Examples
from modelkeeper.frontends.torch.operations import signature
from modelkeeper.frontends.torch.program import Hole, Program
from modelkeeper.frontends.torch.run_program import Pass

CHUNK = 128  # examples that run at once
HELD_OUT = 0.2


@dataclass
class Chunk:
    """Some examples on their way through both models."""

    ours: Pass
    theirs: Pass
    inputs: list[Tensor]
    labels: Tensor | None


@dataclass(frozen=True)
class Site:
    """Where a layer is fitted, and to what."""

    step: int
    axis: int  # of the units
    target: Target
    number: int  # the parent's value
    rest: int | None  # the child's value that is added to the layer's output
    shape: Sequence[int]  # of the layer's output, on the first examples
    extent: tuple[int, ...] = ()  # of the child's maps, if the parent's are larger or smaller


class Alongside:
    """Both models, side by side, as far as they have come."""

    def __init__(
        self,
        ours: Program,
        plain: dict[str, Tensor],
        start: dict[str, Tensor],
        parent: Program,
        theirs: dict[str, Tensor],
        examples: Examples,
        count: int,
        end: float,
    ) -> None:
        """`count` of the examples are used; after `end` (of `time.perf_counter`) nothing more is fitted."""
        self.program, self.parent = ours, parent
        self._plain, self._theirs = plain, theirs
        self.tensors, self.changed = dict(start), set[str]()
        mine, other = examples.fitting(ours), examples.fitting(parent)
        self._end = end
        order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))[:count]
        held = max(1, int(HELD_OUT * count))
        self._labels = examples.labels
        self._keep: tuple[set[int], set[int]] = (set(ours.outputs), set(parent.outputs))
        self._fit = [self._passes(part, mine, other) for part in torch.split(order[held:], CHUNK)]
        self.hold = [self._passes(part, mine, other) for part in torch.split(order[:held], CHUNK)]
        self._generator = torch.Generator().manual_seed(1)
        self._waiting: Counter[int] = Counter()
        self._norms = [n for n, each in enumerate(ours.steps) if each.operation.startswith("batch_norm")]
        self._seen_to = set[int]()  # those of them that hold the statistics that they should

    @property
    def normed(self) -> bool:
        """Does the child have batch norms?"""
        return bool(self._norms)

    def expect(self, aims: Sequence[Aim]) -> None:
        """Which of the parent's values are still to be looked at? They are held until then."""
        named = [target.layer for aim in aims for target in aim.targets]
        self._waiting = Counter(self.parent.layers[name] for name in named if name in self.parent.layers)
        self._keep[1].update(self._waiting)

    def _passes(self, part: Tensor, mine: list[Tensor], other: list[Tensor]) -> "Chunk":
        labels = self._labels[part] if self._labels is not None else None
        inputs = [tensor[part] for tensor in mine]
        return Chunk(
            Pass(self.program, self.tensors, inputs, self._keep[0]),
            Pass(self.parent, self._theirs, [tensor[part] for tensor in other], self._keep[1]),
            inputs,
            labels,
        )

    def _site(self, aim: Aim, step: int) -> "Site | str":
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
        best: Site | None = None
        for target in candidates:
            site = self._at(target, step, axis, shape, rest)
            if site is not None and not site.extent:
                return site
            best = best or site
        if best is None:
            return "the parent has nothing of this shape here"
        self._advance_parent(best.number)  # looking at others may have meant to start over
        return best

    def _at(
        self, target: Target, step: int, axis: int, shape: Sequence[int], rest: int | None
    ) -> "Site | None":
        """A layer beside one target, if the two can be compared."""
        number = self.parent.layers.get(target.layer)
        if number is None:
            return None
        self._advance_parent(number)
        there = self._fit[0].theirs.value(number).shape
        if len(there) != len(shape) or int(target.units.max(initial=-1)) >= there[axis]:
            return None
        if there[:axis] == shape[:axis] and there[axis + 1 :] == shape[axis + 1 :]:
            return Site(step, axis, target, number, rest, shape)
        maps = axis == 1 and len(shape) > 2
        return Site(step, axis, target, number, rest, shape, tuple(shape[2:])) if maps else None

    def _beside_lender(self, aim: Aim, site: "Site") -> "Site | None":
        """The layer beside the one that lends to it, if it is fitted to something else."""
        if site.target is aim.targets[-1]:
            return None
        found = self._at(aim.targets[-1], site.step, site.axis, site.shape, None)
        self._advance_parent(site.number)
        return None if found is None or found.extent else found

    def _channels_first(self, step: int) -> bool:
        return self.program.steps[step].operation.partition(".")[0] in (
            "batch_norm",
            "group_norm",
            "instance_norm",
        )

    def _advance_parent(self, number: int) -> None:
        self._keep[1].add(number)
        for chunk in (*self._fit, *self.hold):
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

    def _wanted(self, chunk: "Chunk", site: "Site") -> Tensor:
        """What should come out, with its units on the last axis."""
        units = torch.from_numpy(site.target.units)
        factor = torch.from_numpy(site.target.factor)
        theirs = chunk.theirs.value(site.number)
        if site.extent:
            theirs = resized(theirs, site.extent)
        theirs = theirs.movedim(site.axis, -1)
        return theirs[..., units.clamp_min(0)] * torch.where(units < 0, 0.0, factor).to(theirs.dtype)

    def _advance(self, step: int) -> None:
        for chunk in (*self._fit, *self.hold):
            chunk.ours.to(step)

    def _statistics_of(self, number: int) -> tuple[str, str] | None:
        """The names of a batch norm's mean and variance, if it goes by any."""
        given = self._given_later(number)
        held = [given.get(name) for name in ("running_mean", "running_var")]
        mean, variance = (self._name_of(each) if isinstance(each, Hole) else "" for each in held)
        return (mean, variance) if mean and variance else None

    def _name_of(self, hole: Hole) -> str:
        """Of the model's tensor that is put there; "" if it is something else."""
        place = hole.v - len(self.program.inputs)
        return self.program.tensors[place].name if 0 <= place < len(self.program.tensors) else ""

    def _operands(self, aim: Aim, step: int) -> str | None:
        """The name of the argument that a projection reads, if its weight is the tensor we know."""
        found = signature(self.program.steps[step].operation)
        assert found is not None
        given = dict(
            zip((p.name for p in found.parameters), self.program.steps[step].arguments, strict=False)
        )
        for taken, weight in (("input", "weight"), ("mat1", "mat2"), ("self", "mat2"), ("self", "other")):
            held = given.get(weight)
            if taken in given and isinstance(held, Hole) and self._name_of(held) == aim.weight:
                return taken
        return None

    def _given(self, step: int) -> dict[str, Any]:
        return self._fit[0].ours.arguments(step)

    def _given_later(self, step: int) -> dict[str, Any]:
        """The plain arguments of a step that has not run yet."""
        found = signature(self.program.steps[step].operation)
        assert found is not None
        return dict(zip((p.name for p in found.parameters), self.program.steps[step].arguments, strict=False))

    def _epsilon(self, aim: Aim) -> float:
        step = self.program.maker(self.program.layers[aim.norm or aim.layer])
        return float(self._given_later(step).get("eps", 1e-5))

    def _set(self, name: str, value: Tensor) -> None:
        old = self._plain[name]
        self.changed.add(name)
        self.tensors[name] = value.reshape(old.shape).to(old.dtype)

    def outputs(self, chunk: "Chunk") -> tuple[Tensor, Tensor, Tensor]:
        found = []
        plain = Pass(self.program, self._plain, chunk.inputs, self._keep[0])
        for one in (chunk.ours, plain, chunk.theirs):
            one.to(len(one.program.steps))
            found.append(one.value(one.program.outputs[0]))
        return found[0], found[1], found[2]


def resized(maps: Tensor, extent: Sequence[int]) -> Tensor:
    """Maps (examples, units, ...) of another size: means over areas, or the nearest place where it grows."""
    for axis, size in enumerate(extent, 2):
        have = maps.shape[axis]
        if size != have:
            areas = [(n * have // size, -(-(n + 1) * have // size)) for n in range(size)]
            means = [maps.narrow(axis, begin, end - begin).mean(axis, keepdim=True) for begin, end in areas]
            maps = torch.cat(means, axis)
    return maps
