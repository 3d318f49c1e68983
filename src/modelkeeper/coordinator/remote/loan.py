"""What does a parent lend whose zoo is behind HTTP? Its weights, gathered there, or the parent itself.

loan.weights()      the child's tensors, made by the service and received as one stream
loan.lender()       the parent with its program, downloaded: for whoever runs it beside the child
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from modelkeeper.coordinator.candidates import same_task
from modelkeeper.coordinator.planning import plan_from
from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.remote.downloads import direct_url, download, receive, refuse_no_numbers
from modelkeeper.coordinator.wire import DIRECT_BYTES, WeightsRequest
from modelkeeper.errors import InvalidSignature
from modelkeeper.graph import Graph, from_json
from modelkeeper.layouts import Laid, Layout
from modelkeeper.meta import Query
from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.lender import Lender
from modelkeeper.weights import MAX_HEADER, Array, Header, open_file
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.signatures import signed_as_seen
from modelkeeper.zoo.zoo import stored_tensors

_ADVICE = "Ask whoever runs the coordinator."


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
            # What a coordinator makes of a parent is covered by no signature.
            if self._query.signed or self._is_the_parents_file():
                yield from self._made_here()
                return
            parents = [parent.id for parent in self.answer.parents]
            request = WeightsRequest.of(self._graph.as_json, self._query, parents)
            yield from receive(self._calls, msgspec.json.encode(request), self._graph, self._allowance)

    def _is_the_parents_file(self) -> bool:
        """Is what is lent as large as the parent's own file, and is that to be had from the store itself?

        The same plan makes the same weights of it here, and the coordinator carries none of them.
        """
        needed = Header.of(stored_tensors(self._graph)).data_bytes
        if len(self.answer.parents) > 1 or needed < DIRECT_BYTES or not self._calls.direct.open:
            return False
        record = self._calls.ask("GET", f"/models/{self.answer.parent}", Record, allowance=self._allowance)
        same = record.fingerprint == self._graph.fingerprint and record.bytes <= needed + MAX_HEADER
        return same and direct_url(self._calls, record, self._allowance) != ""

    def _made_here(self) -> Iterator[tuple[str, Array]]:
        """The same from the parent's own file, which is what was registered, and perhaps signed."""
        from modelkeeper.transform import apply

        with self.lender() as lender:
            if lender is not None:
                yield from apply(lender.plan, lender.tensors)

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
        graph_bytes = bytes(ask(f"{place}/graph", msgspec.Raw))
        program = ask(f"{place}/program", bytes | None)  # type: ignore[arg-type]
        self._expect_signed(record, graph_bytes, program)
        parent_graph = from_json(graph_bytes)
        with tempfile.TemporaryDirectory(prefix="modelkeeper-") as folder:
            path = Path(folder) / "model.safetensors"
            download(self._calls, record, path, self._allowance)
            plan = plan_from(parent_graph, self._graph, self._query, same=same_task(record, self._query))
            weights = open_file(path)
            refuse_no_numbers(self._calls, parent_graph, weights)
            yield Lender(plan, weights, program)

    def _expect_signed(self, record: Record, graph: bytes, program: bytes | None) -> None:
        """Raise InvalidSignature if a parent that is said to be signed is not what was signed.

        The checksum of its weights is in the record, and compared when they have come.
        """
        signer = self.answer.parents[0].signer if self.answer.parents else ""
        if not signer and not self._query.signed:
            return
        envelope = self._calls.ask(
            "GET",
            f"/models/{record.id}/signature",
            bytes | None,  # type: ignore[arg-type]
            allowance=self._allowance,
        )
        signed = signed_as_seen(envelope or b"", record)
        files = {"graph": (graph, record.graph), "program": (program or b"", record.program)}
        for name, (content, checksum) in files.items():
            if (hashlib.sha256(content).hexdigest() if content else "") != checksum:
                raise InvalidSignature(record.id, f"its {name} is not what was signed", _ADVICE)
        if signed.signer != signer:
            raise InvalidSignature(record.id, f"it is not signed by key {signer[:16]}", _ADVICE)
