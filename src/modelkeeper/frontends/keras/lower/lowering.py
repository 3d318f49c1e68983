"""From a recording of keras.ops to a trace over the vocabulary: what all rules share.

    low = Lowering(variables)
    low.input(tensor, ...)          what goes in
    low.run(call)                   one operation: its rule, or opaque
    low.trace(outputs)

Rules (see `table`) ask for operands in the order that they need, write steps, and return what they made.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree

from modelkeeper.frontends.keras.lower.seen import Held, Seen, inverse
from modelkeeper.frontends.keras.lower.table import RULES, CannotLower
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.pieces import Piece, Pieces
from modelkeeper.frontends.keras.recorder import Call, StandIn
from modelkeeper.frontends.keras.settings import settings_of
from modelkeeper.frontends.keras.variables import Variables, is_variable, shape_of
from modelkeeper.graph import Note
from modelkeeper.layouts import Layout
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.trace import OwnedTensor, Step, Trace, Value

# What a rule may raise for arguments that nobody thought of: the operation is then opaque.
_MISREAD = (TypeError, ValueError, KeyError, IndexError, AttributeError, NotImplementedError)


class Lowering:
    """Writes one trace."""

    def __init__(self, variables: Variables, readers: dict[int, int]) -> None:
        """Begin with nothing.

        Args:
            variables: Of the model.
            readers: How often each symbolic tensor is read, by its identity.
        """
        self.build = TraceBuilder("keras")
        self.notes: list[Note] = []
        self.pieces = Pieces()
        self._variables, self._readers = variables, readers
        self._seen: dict[int, Seen | Held] = {}
        self._dtype: str | None = None  # of what the current operation makes
        self._opaque: set[str] = set()

    # -- the whole ------------------------------------------------------------------------------

    def input(self, tensor: Any, order: Sequence[int], name: str) -> None:
        """What goes in; `order`: which of Keras' axes each axis of the trace is."""
        value = self.build.input([tensor.shape[n] for n in order], tensor.dtype, name)
        self._seen[id(tensor)] = Seen.moved(value, inverse(list(order)))

    def run(self, call: Call) -> None:
        """One operation: as its rule says, or opaque."""
        self._dtype = call.outputs[0].dtype if call.outputs else None
        rule = None if call.opaque else RULES.get(call.name)
        before = len(self.build.steps)
        try:
            if rule is None:
                raise CannotLower(call.opaque or "no rule for it")
            made = rule(self, call)
        except (CannotLower, *_MISREAD) as problem:
            del self.build.steps[before:]
            made = self._opaquely(call, str(problem))
        results = made if isinstance(made, list) else [made]
        for tensor, result in zip(call.outputs, results, strict=True):
            seen = Seen.plain(result) if isinstance(result, Value) else result
            assert seen.shape == tuple(tensor.shape), (call.name, seen.shape, tensor.shape)
            self._seen[id(tensor)] = seen

    def output(self, tensor: Any) -> tuple[Value, tuple[int, ...]]:
        """What comes out, and which of Keras' axes each of its axes is: images have their channels first."""
        seen = self.seen(tensor)
        if isinstance(seen, Seen) and seen.only_moved:
            return seen.value, inverse(seen.order)
        return self.plain(tensor), tuple(range(len(tensor.shape)))

    def trace(self, outputs: Sequence[Value], ran_on: Any) -> Trace:
        """The trace of what led to these values."""
        return self.build.trace(outputs, tensors=self._owned(), notes=self.notes, ran_on=ran_on)

    def _owned(self) -> list[OwnedTensor]:
        """Every tensor of the model, in the order of its variables."""
        for named in self._variables:
            if named.variable not in self.pieces:
                self.pieces.add(Piece(named, named.name, Layout.plain(named.shape)))
        return [piece.owned for named in self._variables for piece in self.pieces.of(named.variable)]

    def _opaquely(self, call: Call, why: str) -> list[Any]:
        """Nothing is known of it: what goes in and its weights are pinned, what comes out is new."""
        taken = [self.plain(leaf) for leaf in tree.flatten((call.args, call.kwargs)) if _is_value(leaf)]
        weights = getattr(call.operation, "weights", ())
        taken += [self.enter(variable, Layout.plain(shape_of(variable))) for variable in weights]
        name, as_set = f"keras::{call.name}", settings_of(call.operation)
        name += f"#{as_set}" if as_set else ""  # what is set otherwise is another operation
        shapes = [tuple(tensor.shape) for tensor in call.outputs]
        made = self.build.results(name, shapes, dtype=self._dtype, self=taken)
        if name not in self._opaque:
            self._opaque.add(name)
            self.notes.append(Note("opaque", call.where[:200], f"{call.name}: {why}"[:300]))
        return [Seen.plain(value) for value in made]

    # -- operands -------------------------------------------------------------------------------

    def seen(self, thing: Any) -> Seen | Held:
        """An operand: a symbolic tensor, a variable, or numbers."""
        if isinstance(thing, (Seen, Held)):
            return thing
        if isinstance(thing, Value):
            return Seen.plain(thing)
        if isinstance(thing, StandIn) or is_variable(thing):
            variable = thing.variable if isinstance(thing, StandIn) else thing
            return self._seen.get(id(thing)) or Held(variable, shape_of(variable))
        if isinstance(thing, keras.KerasTensor):
            return self._seen[id(thing)]
        return Seen.plain(self.build.constant(to_numpy(thing)))

    def moved(self, thing: Any) -> Seen:
        """An operand of which only axes are moved; others are brought in Keras' order."""
        seen = self.seen(thing)
        return seen if isinstance(seen, Seen) and seen.only_moved else Seen.plain(self.plain(seen))

    def plain(self, thing: Any) -> Value:
        """An operand in Keras' own order and shape."""
        seen = self.seen(thing)
        if isinstance(seen, Held):
            variable = seen.variable
            return self.build.view(self.enter(variable, Layout.plain(shape_of(variable))), seen.shape)
        value = self.permute(self.build.view(seen.value, seen.split), seen.order)
        return self.build.view(value, seen.shape)

    def arranged(self, thing: Any, order: Iterable[int]) -> Value:
        """An operand whose axis n is Keras' axis order[n]."""
        seen = self.moved(thing)
        return self.permute(seen.value, [seen.order[n] for n in order])

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        """Axes in another order: only a view where no axis of more than one unit changes its place."""
        wide = [n for n in order if value.shape[n] != 1]
        if wide == sorted(wide):
            return self.build.view(value, [value.shape[n] for n in order])
        return self.build.permute(value, order)

    def units(self, held: Held, seen: Seen) -> Value | None:
        """A variable with a number for each unit of a flattened operand, in the order of its value."""
        if not seen.flattened or math.prod(held.shape) != seen.shape[-1] or held.shape[-1] != seen.shape[-1]:
            return None
        first = tuple(seen.split[n] for n in seen.order[1:])
        order = inverse([n - 1 for n in seen.order[1:]])
        return self.enter(held.variable, Layout(first, order, (seen.shape[-1],)))

    # -- variables ------------------------------------------------------------------------------

    def enter(self, variable: Any, layout: Layout) -> Value:
        """A variable in a layout; the first one to ask decides how the graph has it."""
        pieces = self.pieces.of(variable)
        if not pieces:
            named = self._variables.of(variable)
            return self.build.tensor(self.pieces.add(Piece(named, named.name, layout)).owned)
        first, value = pieces[0].layout, self.build.tensor(pieces[0].owned)
        if len(pieces) > 1:
            raise CannotLower("a variable that is several tensors is used in another way, too")
        if first == layout:
            return value
        value = self.build.view(value, [first.first[n] for n in first.order])
        value = self.permute(value, inverse(first.order))
        if first.regroup is not None:
            value = self._take(value, first.regroup[0], inverse(first.regroup[1]))
        value = self.build.view(value, layout.first)
        if layout.regroup is not None:
            value = self._take(value, *layout.regroup)
        return self.build.view(self.permute(value, layout.order), layout.last)

    def piece(
        self, variable: Any, suffix: str, layout: Layout, row: int | None, added: bool = False
    ) -> Value:
        """A tensor of the graph that is a part of a variable, or zeros that are added to it when loading."""
        named = self._variables.of(variable)
        for known in self.pieces.of(variable):
            if known.name == named.name + suffix:
                return self.build.tensor(known.owned)
        return self.build.tensor(self.pieces.add(Piece(named, named.name + suffix, layout, row, added)).owned)

    def _take(self, value: Value, axis: int, parts: Sequence[int]) -> Value:
        index = self.build.constant(np.array(parts))
        return self.build.step("index_select", value.shape, self=value, dim=axis, index=index)

    # -- steps ----------------------------------------------------------------------------------

    def step(self, name: str, shape: Iterable[int], /, **arguments: Any) -> Value:
        """One step, whose result has the dtype of what the current operation makes."""
        return self.build.step(name, shape, dtype=self._dtype, **arguments)

    def steps(self, name: str, shapes: Sequence[Iterable[int]], /, **arguments: Any) -> list[Value]:
        """One step with several results."""
        return self.build.results(name, shapes, dtype=self._dtype, **arguments)

    def read_once(self, tensor: Any) -> bool:
        """Is a symbolic tensor read by nothing but the current operation?"""
        return self._readers.get(id(tensor), 0) <= 1

    def approximate(self, call: Call, what: str) -> None:
        """Say that something is not quite so in the graph."""
        self.notes.append(Note("approximate", call.where[:200], what))


def made_by(value: Value) -> Step | None:
    """The step that made a value, if it is its first result."""
    step = value.step
    return step if step is not None and step.outputs[0] is value else None


def number(thing: Any) -> bool | int | float | None:
    """A plain number, if it is one."""
    if thing is None or isinstance(thing, (bool, int, float)):
        return thing
    if isinstance(thing, (Seen, Held, keras.KerasTensor, str)) or is_variable(thing):
        return None
    array = to_numpy(thing)
    return array.reshape(-1)[0].item() if array.size == 1 and array.dtype != object else None


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, keras.KerasTensor) or is_variable(leaf)
