"""What do models that are at hand lend, without a zoo? Sources of a start, for `transfer`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidSetting, InvalidWeights
from modelkeeper.frontends import Frontend, describe
from modelkeeper.graph import Graph
from modelkeeper.layouts import Laid, Layout
from modelkeeper.matching import Alignment, align
from modelkeeper.transform import Plan, SideBySide, apply, lay, make_plan, side_by_side
from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.lender import Lender
from modelkeeper.weights import Array, open_file


@dataclass(frozen=True)
class ModelSource:
    """A single model, or a graph and its weights, as a source: it lends what it has."""

    model: Any
    frontend: Frontend | None  # that takes it; None: it is a Graph
    example_inputs: Any = None
    weights: Mapping[str, Array] | str | Path | None = None  # of a Graph
    parent: Any = None  # what can be run beside the child: the model itself, or its program
    same_task: bool = True
    seed: int = 0
    noise: float = 0.0
    frozen: frozenset[str] = frozenset()  # tensors of the child that keep their values

    def loan(self, graph: Graph) -> "ModelLoan":
        """What it lends to a model with this graph.

        Raises:
            CannotDescribe: It did not run on the inputs there were.
            InvalidWeights: It is a Graph, and came without weights.
        """
        parent, tensors = self.read()
        alignment = align(parent, graph)
        plan = make_plan(
            parent,
            graph,
            alignment,
            same_task=self.same_task,
            seed=self.seed,
            noise=self.noise,
            frozen=self.frozen,
        )
        return ModelLoan(plan, alignment, tensors, self.parent)

    def another(self, graph: Graph, than: Answer) -> None:
        """There is none."""

    def read(self) -> tuple[Graph, Mapping[str, Array]]:
        """Its graph, and its tensors by name."""
        if self.frontend is not None:
            graph = describe(self.frontend, self.model, self.example_inputs)
            return graph, dict(self.frontend.read(self.model))
        if self.weights is None:
            raise InvalidWeights("source", "a Graph has no weights; pass weights=")
        if isinstance(self.weights, str | Path):
            return self.model, open_file(self.weights)
        return self.model, self.weights


class ModelLoan:
    """What one model lends to another."""

    def __init__(self, plan: Plan, alignment: Alignment, tensors: Mapping[str, Array], parent: Any) -> None:
        """`parent`: the model, or its program; None: it cannot be run."""
        self.plan, self.alignment, self._tensors, self._parent = plan, alignment, tensors, parent
        self.answer = Answer(
            parent="",
            similarity=alignment.similarity,
            framework=plan.parent.framework,
            exact=plan.exact,
            doubts=tuple(plan.doubts),
        )

    def weights(self) -> Iterator[tuple[str, Array]]:
        """The child's tensors by name."""
        return apply(self.plan, self._tensors)

    def stored_weights(self, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Array | Laid]]:
        """The same in the order in which the child stores them."""
        return apply(self.plan, self._tensors, layouts=layouts)

    @contextmanager
    def lender(self) -> Iterator[Lender | None]:
        """The parent itself; None if it cannot be run."""
        runs = self._parent is not None
        yield Lender(self.plan, self._tensors, None, self._parent) if runs else None


@dataclass(frozen=True)
class SeveralSource:
    """Several models as one source: they lie side by side in whoever takes from them."""

    models: Sequence[ModelSource]

    def loan(self, graph: Graph) -> "SeveralLoan":
        """What they lend to a model with this graph.

        Raises:
            CannotDescribe: One did not run on the inputs there were.
            InvalidSetting: There is no room for all of them.
        """
        read = [model.read() for model in self.models]
        alignments = [align(parent, graph) for parent, _ in read]
        first = self.models[0]
        plan = side_by_side(
            [(parent, alignment) for (parent, _), alignment in zip(read, alignments, strict=True)],
            graph,
            same_task=first.same_task,
            seed=first.seed,
            frozen=first.frozen,
            parts=True,
        )
        if plan is None:
            advice = "the target is not wide enough to hold them side by side: give fewer, or a wider target"
            raise InvalidSetting("source", f"{len(read)} models", advice)
        return SeveralLoan(plan, alignments[0], [tensors for _, tensors in read])

    def another(self, graph: Graph, than: Answer) -> None:
        """There is none."""


class SeveralLoan:
    """What several models lend to another."""

    def __init__(
        self, plan: SideBySide, alignment: Alignment, tensors: Sequence[Mapping[str, Array]]
    ) -> None:
        """`alignment`: that of the first."""
        self.plan, self.alignment, self._tensors = plan, alignment, tensors
        self.answer = Answer(
            parent="",
            similarity=alignment.similarity,
            framework=plan.parts[0].parent.framework,
            exact=plan.exact,
            doubts=tuple(plan.doubts),
        )

    def weights(self) -> Iterator[tuple[str, Array]]:
        """The child's tensors by name."""
        return lay(self.plan, self._tensors)

    def stored_weights(self, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Array | Laid]]:
        """The same: laid side by side they are made as the graph has them."""
        yield from lay(self.plan, self._tensors)

    @contextmanager
    def lender(self) -> Iterator[Lender | None]:
        """None: several are not run beside their child."""
        yield None
