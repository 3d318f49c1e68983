"""How do reshapes and transpositions stay short? Those that undo each other leave no step behind.

Exporters write out what a framework does by strides: a transposition between two reshapes, a pair of
transpositions around a recurrent layer. A reshape is taken through a transposition where it only joins or
divides axes that lie side by side; if no transposition is left then, there was none. Others are steps, each
as it was written.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelkeeper.graph.vocabulary import PERMUTE, VIEW
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.trace import Step, Value


def permuted(build: TraceBuilder, value: Value, order: Sequence[int]) -> Value:
    """The axes of a value in another order."""
    order = [axis % max(1, len(value.shape)) for axis in order]
    return _undone(build, build.permute(value, order))


def viewed(build: TraceBuilder, value: Value, shape: Sequence[int]) -> Value:
    """The same numbers in another shape."""
    if value.step is not None and value.step.name == VIEW:
        value = value.step.inputs[0]
    return _undone(build, build.view(value, shape))


@dataclass(frozen=True, slots=True)
class Moved:
    """A value as another one in a new shape, with its axes then in a new order."""

    root: Value
    shape: tuple[int, ...]
    order: tuple[int, ...]
    count: int  # of the moves that it took


def moves_of(value: Value) -> Iterator[Moved]:
    """A value as each of those that it was made of by reshapes and transpositions, the farthest first."""
    chain: list[Step] = []
    at = value
    while at.step is not None and at.step.name in (VIEW, PERMUTE):
        chain.insert(0, at.step)
        at = at.step.inputs[0]
    for start in range(len(chain)):
        moved = _followed(chain[start:])
        if moved is not None:
            yield moved


def _followed(chain: Sequence[Step]) -> Moved | None:
    """What several moves come to, if that is one reshape and one transposition."""
    root = chain[0].inputs[0]
    shape, order = root.shape, tuple(range(len(root.shape)))
    for step in chain:
        if step.name == PERMUTE:
            order = tuple(order[axis] for axis in step.arguments["dims"])
            continue
        blocks = _blocks(tuple(shape[axis] for axis in order), step.outputs[0].shape)
        through = _through(order, blocks) if blocks is not None else None
        if through is None:
            return None
        shape, order = through
    return Moved(root, shape, order, len(chain))


def _undone(build: TraceBuilder, value: Value) -> Value:
    """The value itself, or a plain reshape of another one if no transposition is left between them."""
    for moved in moves_of(value):
        wide = [
            axis for axis in moved.order if moved.shape[axis] != 1
        ]  # where an axis of one stands is no matter
        if moved.count > 1 and wide == sorted(wide):
            return build.view(moved.root, value.shape)
    return value


Block = tuple[list[int], list[int]]  # axes before, and the sizes that they become


def _blocks(before: Sequence[int], after: Sequence[int]) -> list[Block] | None:
    """Which axes become which sizes, in the smallest groups that keep their product."""
    if 0 in before:
        return None
    blocks: list[Block] = []
    old, new = 0, 0
    while old < len(before) or new < len(after):
        axes, sizes = [], []
        if old < len(before):
            axes.append(old)
            old += 1
        if new < len(after) and (not axes or before[axes[0]] != 1 or after[new] == 1):
            sizes.append(after[new])
            new += 1
        while math.prod(before[axis] for axis in axes) != math.prod(sizes):
            if math.prod(before[axis] for axis in axes) < math.prod(sizes):
                axes.append(old)
                old += 1
            else:
                sizes.append(after[new])
                new += 1
        blocks.append((axes, sizes))
    return blocks


def _through(order: Sequence[int], blocks: Sequence[Block]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes before a transposition and the order behind it, if each block lies together before it."""
    placed = []
    for number, (axes, sizes) in enumerate(blocks):
        sources = [order[axis] for axis in axes]
        if sources and sources != list(range(sources[0], sources[0] + len(sources))):
            return None
        placed.append((sources[0] if sources else -1, number, sizes))
    shape: list[int] = []
    starts: dict[int, int] = {}
    for _, number, sizes in sorted(placed):
        starts[number] = len(shape)
        shape.extend(sizes)
    moved = [starts[number] + n for number, (_, sizes) in enumerate(blocks) for n in range(len(sizes))]
    return tuple(shape), tuple(moved)
