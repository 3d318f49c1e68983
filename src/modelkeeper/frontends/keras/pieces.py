"""Which tensors of the graph is a variable, and how are they read and written?

Mostly a variable is one tensor, in some layout. Some are several: a GRU keeps both of its biases in one
array, row by row. Where the graph has two biases and Keras one, the second is read as zeros, and added to
the first when it is loaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from modelkeeper.frontends.keras.variables import NamedVariable
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import OwnedTensor


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the graph that is a variable, or a part of one."""

    variable: NamedVariable
    name: str
    layout: Layout
    row: int | None = None  # the row of the variable that it is; None: all of it
    added: bool = False  # the variable has no place for it: zeros when read, added when loaded

    @property
    def owned(self) -> OwnedTensor:
        """As a trace has it."""
        named = self.variable
        return OwnedTensor(
            names=(self.name,),
            shape=self.layout.last,
            dtype=named.dtype,
            parameter=named.parameter,
            trainable=named.trainable,
            stored=named.stored,
            module=named.name.rpartition(".")[0],
        )


@dataclass(slots=True)
class Pieces:
    """The tensors of the graph, by variable."""

    _by_variable: dict[int, list[Piece]] = field(default_factory=dict)

    def add(self, piece: Piece) -> Piece:
        """Keep a tensor of the graph."""
        self._by_variable.setdefault(id(piece.variable.variable), []).append(piece)
        return piece

    def of(self, variable: Any) -> list[Piece]:
        """The tensors that a variable is; none if nobody used it yet."""
        return self._by_variable.get(id(variable), [])

    def __contains__(self, variable: Any) -> bool:
        return id(variable) in self._by_variable

    def __iter__(self) -> Iterator[Piece]:
        for pieces in self._by_variable.values():
            yield from pieces
