"""What does a parent lend to one model? An answer, the weights, and the parent itself, to be run."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from modelkeeper.layouts import Laid, Layout
    from modelkeeper.warmstart.answer import Answer
    from modelkeeper.warmstart.lender import Lender
    from modelkeeper.weights import Array


class Loan(Protocol):
    """What was found for a model: the answer, and what its parent lends. A cold start lends nothing."""

    @property
    def answer(self) -> "Answer":
        """Which parent, why, and what of it; or a cold start."""

    def weights(self) -> "Iterator[tuple[str, Array]]":
        """The child's tensors by name, gathered from the parent's; none for a cold start, or a dry run.

        Raises:
            InvalidWeights: The parent's weights do not fit its graph, or hold NaN.
            CoordinatorUnreachable: They do not come, or were damaged on their way.
        """

    def stored_weights(self, layouts: "Mapping[str, Layout]") -> "Iterator[tuple[str, Array | Laid]]":
        """The same in the order in which the model stores them, where whoever lends can write them so."""

    def lender(self) -> "AbstractContextManager[Lender | None]":
        """The parent itself, as long as the context is open; None: there is none that could be run.

        Raises:
            CoordinatorUnreachable: It does not come.
        """
