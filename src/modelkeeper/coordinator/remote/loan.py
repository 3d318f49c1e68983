"""What does a parent lend whose zoo is behind HTTP? Its weights, gathered there, or the parent itself.

loan.weights()      the child's tensors, made by the service and received as one stream
loan.lender()       the parent with its program, downloaded: for whoever runs it beside the child
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.remote.downloads import download, receive
from modelkeeper.coordinator.search import plan_from
from modelkeeper.coordinator.wire import WeightsRequest
from modelkeeper.graph import Graph, from_json, to_json
from modelkeeper.layouts import Laid, Layout
from modelkeeper.meta import Query
from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.lender import Lender
from modelkeeper.weights import Array, open_file
from modelkeeper.zoo.records import Record


class RemoteLoan:
    """What a query found behind HTTP, a `Loan`: the answer, and where the weights come from."""

    def __init__(
        self, answer: Answer, calls: Calls, graph: Graph, query: Query, allowance: Allowance | None = None
    ) -> None:
        self.answer, self._calls, self._graph, self._query = answer, calls, graph, query
        self._allowance = allowance or Allowance()

    def weights(self) -> Iterator[tuple[str, Array]]:
        """The child's tensors by name, each as it arrives; none for a cold start, or a dry run.

        Raises:
            CoordinatorUnreachable: They do not come; or, at the very end, were damaged on their way.
        """
        if self.answer.parent is not None and not self.answer.dry_run:
            parents = [parent.id for parent in self.answer.parents]
            request = WeightsRequest.of(to_json(self._graph), self._query, parents)
            yield from receive(self._calls, msgspec.json.encode(request), self._graph, self._allowance)

    def stored_weights(self, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Array | Laid]]:
        """The same: the service sends tensors as the graph has them."""
        return self.weights()

    @contextlib.contextmanager
    def lender(self) -> Iterator[Lender | None]:
        """The parent itself, for whoever wants to run it; None for a cold start, a dry run, or several.

        Raises:
            CoordinatorUnreachable: It does not come.
        """
        if self.answer.parent is None or self.answer.dry_run or len(self.answer.parents) > 1:
            yield None
            return
        place = f"/models/{self.answer.parent}"
        ask = partial(self._calls.ask, "GET", allowance=self._allowance)
        record = ask(place, Record)
        if record.id != self.answer.parent:
            self._calls.refuse(f"{record.id} instead of {self.answer.parent}")
        parent_graph = from_json(bytes(ask(f"{place}/graph", msgspec.Raw)))
        program = ask(f"{place}/program", bytes | None)  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory(prefix="modelkeeper-") as folder:
            path = Path(folder) / "model.safetensors"
            download(self._calls, record, path, self._allowance)
            plan = plan_from(record, parent_graph, self._graph, self._query)
            yield Lender(plan, open_file(path), program)
