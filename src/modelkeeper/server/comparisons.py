"""What would one model of the zoo lend to another, layer by layer? And what was compared lately?

    comparisons = Comparisons(coordinator, seconds)     one for a service
    found = comparisons.of(lender, borrower)            rows, what happens in each, the alignment and the plan
    compare(parent, child, same_task=True, seconds=20)  the same of any two graphs, not remembered

A row is a layer of each, or of one alone, and what happens there: copied, widened, narrowed, resized,
inserted or kept, as the plan says of most of its numbers; `same` where a layer has no weights; skipped, where
only the parent has it. Who may see the two models is the business of whoever asks.
"""

import time
from collections.abc import Callable, Hashable

from msgspec import Struct

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.display.comparison import Row
from modelkeeper.display.comparison import rows as aligned_rows
from modelkeeper.graph import Graph
from modelkeeper.matching import Alignment, align
from modelkeeper.patience import OutOfPatience, waiting
from modelkeeper.transform import Plan, make_plan
from modelkeeper.transform.plan import Entry
from modelkeeper.zoo.database.recent import Recent
from modelkeeper.zoo.records import Record

MOST = 16  # comparisons that are remembered
MOST_LAYERS = 60_000  # of all of them together: some KB each
AGAIN = 60.0  # seconds after which one without a plan is made anew: others may have been busy, too
UNPLANNED = {"=": "same", "~": "changed", "-": "skipped", "+": "added"}


class Comparison(Struct, frozen=True, dict=True, kw_only=True):
    """Two graphs, row by row."""

    parent: Graph
    child: Graph
    alignment: Alignment
    plan: Plan | None  # None: it would have taken too long
    rows: tuple[Row, ...]
    actions: tuple[str, ...]  # of each row
    until: float  # seconds of the monotonic clock up to which it holds
    _said: dict[str, bytes] = {}  # msgspec copies it for each struct

    @property
    def entries(self) -> dict[str, Entry]:
        """What becomes of each tensor of the child, by name."""
        return {} if self.plan is None else {entry.tensor: entry for entry in self.plan.entries}

    def once(self, name: str, tell: "Callable[[Comparison], bytes]") -> bytes:
        """What there is to tell under a name, made the first time."""
        if name not in self._said:
            self._said[name] = tell(self)
        return self._said[name]


class Comparisons:
    """What a process has compared lately. Safe to use from several threads."""

    def __init__(self, coordinator: ServedCoordinator, seconds: float) -> None:
        """A plan may take so many seconds."""
        self._coordinator, self._seconds = coordinator, seconds
        self._recent: Recent[Hashable, Comparison] = Recent(MOST, MOST_LAYERS)

    def of(
        self,
        lender: Record,
        borrower: Record,
        sizes: Hashable = None,
        changed: Callable[[Graph], Graph] | None = None,
    ) -> Comparison:
        """What a model would lend to another; or to what that is once `changed`, to `sizes` that say how."""
        same = (lender.data, lender.task) == (borrower.data, borrower.task)
        key = lender.graph, borrower.graph, same, sizes
        found = self._recent.get(key)
        if found is None or found.until < time.monotonic():
            parent, child = self._coordinator.graph(lender), self._coordinator.graph(borrower)
            child = child if changed is None else changed(child)
            found = compare(parent, child, same_task=same, seconds=self._seconds)
            self._recent.put(key, found, len(parent.layers) + len(child.layers))
        return found


def compare(parent: Graph, child: Graph, *, same_task: bool, seconds: float) -> Comparison:
    """Both models, row by row, and what is lent; without a plan, if that takes too long."""
    alignment = align(parent, child)
    until = time.monotonic() + seconds
    plan: Plan | None = None
    try:
        with waiting(lambda: time.monotonic() > until):
            plan = make_plan(parent, child, alignment, same_task=same_task)
    except OutOfPatience:
        until = time.monotonic() + AGAIN
    rows = tuple(aligned_rows(parent, child, alignment))
    main = _main_actions(plan)
    actions = (
        (main.get(child.layers[row.child].name) if row.child is not None else None) or UNPLANNED[row.mark]
        for row in rows
    )
    return Comparison(
        parent=parent,
        child=child,
        alignment=alignment,
        plan=plan,
        rows=rows,
        actions=tuple(actions),
        until=until if plan is None else float("inf"),
    )


def _main_actions(plan: Plan | None) -> dict[str, str]:
    """What happens to most of the numbers of each layer of the child that has any tensors, by its name."""
    counted: dict[str, dict[str, int]] = {}
    for entry in plan.entries if plan is not None else ():
        of_layer = counted.setdefault(entry.layer, {})
        of_layer[entry.action] = of_layer.get(entry.action, 0) + entry.parameters
    return {layer: max(actions, key=actions.__getitem__) for layer, actions in counted.items()}
