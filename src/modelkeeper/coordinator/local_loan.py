"""What do parents of this process's zoo lend? The weights of a child, gathered from them tensor by tensor.

    loan.weights()      the tensors by name
    loan.stream()       the same as the bytes of a safetensors file, for whoever sends them

Nothing is read or computed before it is asked for; NumPy is imported then, too.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from modelkeeper.warmstart.answer import Answer

if TYPE_CHECKING:
    from modelkeeper.layouts import Laid, Layout
    from modelkeeper.transform import Decisions
    from modelkeeper.warmstart.lender import Lender
    from modelkeeper.weights import Array, Header, Weights


class LocalLoan:
    """What a query found in this process, a `ServedLoan`: the answer, the plan and the parent's weights."""

    def __init__(
        self,
        answer: Answer,
        plan: "Decisions | None" = None,
        sources: "Sequence[Weights]" = (),
        program: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """`sources`: the weights of each parent; none in a dry run. `program`: of the first."""
        self.answer, self.plan, self._sources, self._program = answer, plan, sources, program

    @contextlib.contextmanager
    def lender(self) -> "Iterator[Lender | None]":
        """The parent itself; None for a cold start, a dry run, or several."""
        from modelkeeper.transform import Plan

        if isinstance(self.plan, Plan) and self._sources:
            from modelkeeper.warmstart.lender import Lender

            yield Lender(self.plan, self._sources[0], self._program())
        else:
            yield None

    def weights(self) -> "Iterator[tuple[str, Array]]":
        """The child's tensors by name, each made when it is asked for; none for a cold start.

        Raises:
            InvalidWeights: The parent's weights do not fit its graph, or hold NaN.
        """
        if self.plan is not None and self._sources:
            yield from self._made(self.plan, {})

    def stored_weights(self, layouts: "Mapping[str, Layout]") -> "Iterator[tuple[str, Array | Laid]]":
        """The same in the order in which the child stores them, if a single parent lends."""
        if self.plan is not None and self._sources:
            yield from self._made(self.plan, layouts)

    def _made(self, plan: "Decisions", layouts: "Mapping[str, Layout]") -> "Iterator[tuple[str, Any]]":
        from modelkeeper.transform import Plan, SideBySide, apply, lay

        if isinstance(plan, SideBySide):
            return lay(plan, self._sources)
        assert isinstance(plan, Plan)
        return apply(plan, self._sources[0], layouts=layouts)

    @property
    def header(self) -> "Header":
        """Where each tensor lies in a file of these weights."""
        from modelkeeper.weights import Header

        if self.plan is None:
            return Header({})
        tensors = self.plan.child.tensors
        lent = [tensors[entry.tensor] for entry in self.plan.entries if entry.action != "kept"]
        return Header.of((tensor.name, tensor.dtype, tensor.shape) for tensor in lent)

    def stream(self) -> Iterator[memoryview | bytes]:
        """The bytes of that file. Tensors are made in its order, so that none has to wait for another."""
        if self.plan is not None and self._sources:
            from modelkeeper.weights import stream

            header = self.header
            place = {name: number for number, name in enumerate(header.tensors)}
            ordered = sorted(self.plan.entries, key=lambda entry: place.get(entry.tensor, -1))
            plan = msgspec.structs.replace(self.plan, entries=tuple(ordered))
            yield from stream(header, self._made(plan, {}))
