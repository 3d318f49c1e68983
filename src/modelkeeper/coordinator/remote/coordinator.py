"""The coordinator behind HTTP: query, register, list and remove over a zoo of another process.

    coordinator = RemoteCoordinator("http://10.0.0.7:7433", token="mk_...")

It is a `modelkeeper.coordinator.base.Coordinator`: methods, results and errors are those of one in this
process; one more error says that it cannot be reached. Who asks is known by the token.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from modelkeeper.coordinator.base import Progress
from modelkeeper.coordinator.family import with_parent_ids
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.asking import filters, with_advice
from modelkeeper.coordinator.remote.calls import PAUSES, Busy, Calls
from modelkeeper.coordinator.remote.downloads import Stream, download
from modelkeeper.coordinator.remote.history import RemoteHistory
from modelkeeper.coordinator.remote.loan import RemoteLoan
from modelkeeper.coordinator.remote.spool import Entry, Spool
from modelkeeper.coordinator.remote.trust import RemoteTrust
from modelkeeper.coordinator.wire import (
    MAX_LISTED,
    PREFIX,
    Counts,
    QueryRequest,
    Told,
    UploadState,
)
from modelkeeper.errors import (
    CorruptWeights,
    InvalidMeta,
    InvalidMetric,
    InvalidSignature,
    InvalidWeights,
    ModelKeeperError,
    ModelRefused,
    NotAllowed,
    TooLargeToMatch,
    TooManyRequests,
    UnknownModel,
)
from modelkeeper.graph import Graph, from_json
from modelkeeper.meta import Query, narrowed
from modelkeeper.policy.credit import Credit
from modelkeeper.warmstart.answer import Answer
from modelkeeper.weights import Array, open_file
from modelkeeper.zoo.care.gc import Swept
from modelkeeper.zoo.records import Event, Filter, Record, Registration
from modelkeeper.zoo.restriction import Restriction
from modelkeeper.zoo.signatures import Sign
from modelkeeper.zoo.zoo import Registered

ATTEMPTS = 6  # to send a model, without a byte more having arrived
PIECE = 2**20
COMPLETING = 120.0  # seconds: the model is checked and flushed to the disk
# What sending a model again would not change.
FINAL = (InvalidMeta, InvalidMetric, InvalidSignature, InvalidWeights, ModelRefused, TooLargeToMatch)


class RemoteCoordinator(RemoteHistory, RemoteTrust):
    """One zoo behind HTTP. Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        timeout: float = 10.0,
        spool: str | Path | None = None,
        deadline: float = 300.0,
        allowed: Restriction | None = None,
        direct: bool = True,
    ) -> None:
        """`url` as `address` gives it; `spool` is where models wait that could not be sent.

        A step may take `timeout`, and all steps of a query or a registration `deadline`: see `allowance`.
        Only models that are `allowed` may lend, whatever a query asks for. If `direct`, large files go to and
        from the store itself where the coordinator says how.
        """
        self._allowed = allowed or Restriction()
        self.url = url
        self.spool = Spool.of(spool)
        self._calls = Calls(url, token, timeout, direct=direct)
        self._token, self._deadline = token, deadline

    def close(self) -> None:
        """Hang up."""
        self._calls.close()

    # -- query ----------------------------------------------------------------------------------

    def query(
        self, graph: Graph, query: Query, *, dry_run: bool = False, runners_up: bool = False
    ) -> RemoteLoan:
        """Find a parent for a model, and plan what it lends."""
        query = narrowed(query, self._allowed)
        raw = msgspec.Raw(graph.as_json)
        request = QueryRequest(graph=raw, query=query, dry_run=dry_run, runners_up=runners_up)
        allowance, body = Allowance(self._deadline), msgspec.json.encode(request)
        answer = self._calls.ask("POST", "/query", Answer, body=body, allowance=allowance)
        if not (answer.cold or answer.restricted) and Restriction.of(query):
            self._calls.refuse("a parent without a word of who may lend: it may be too old to restrict that")
        return RemoteLoan(answer, self._calls, graph, query, allowance)

    # -- register -------------------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        registration: Registration,
        tensors: Iterable[tuple[str, Array]],
        *,
        owner: str = "",
        model_id: str = "",
        program: bytes = b"",
        signature: bytes = b"",
        evidence: bytes = b"",
        sign: Sign | None = None,
    ) -> Registered:
        """Take a trained model into the zoo. What cannot be sent now waits in the spool.

        Raises:
            ModelRefused: It is an outlier below its peers, or larger than the zoo's capacity.
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            InvalidSignature: It was signed, but not as what it is.
            CoordinatorUnreachable, ZooUnusable, NotAllowed, QuotaExceeded: It waits in the spool.
        """
        registration = with_parent_ids(registration, self.show)
        entry = self.spool.keep(
            self.url,
            graph,
            registration,
            tensors,
            owner,
            model_id,
            program,
            self._token,
            signature=signature,
            evidence=evidence,
            sign=sign,
            parents=self._checksums(registration.parents) if sign is not None else None,
        )
        with entry.alone():
            return self.send(entry)

    def _checksums(self, models: Iterable[str]) -> dict[str, str]:
        """The checksums of models' weights, as far as they can be had now."""
        known = {}
        for model in models:
            with contextlib.suppress(ModelKeeperError):
                known[model] = self.show(model).checksum
        return known

    def sync(
        self, trusted: Callable[[Entry], bool] = lambda entry: True
    ) -> Iterator[tuple[Entry, Registered | ModelKeeperError]]:
        """Send what waits for this coordinator. Of each model: what became of it.

        Those that are not `trusted` are not sent: whoever put them into the spool would choose who gets the
        token.
        """
        for entry in self.spool.entries():
            if entry.waiting.url != self.url:
                continue
            if not trusted(entry):
                problem = "it is not known that your token is for this address"
                yield entry, NotAllowed(problem, f"If it is: modelkeeper sync --to {self.url}")
                continue
            with entry.alone() as free:
                if free:
                    try:
                        yield entry, self.send(entry)
                    except ModelKeeperError as failed:
                        yield entry, failed

    def send(self, entry: Entry) -> Registered:
        """Send a model that waits; it then waits no more. If it cannot be sent it goes on waiting."""
        try:
            registered = self._send(entry)
        except FINAL:
            entry.forget()
            raise
        except ModelKeeperError as problem:
            raise with_advice(problem, self.url, entry.folder) from problem
        entry.forget()
        return registered

    def _send(self, entry: Entry) -> Registered:
        request = entry.waiting.request
        body = msgspec.json.encode(request)
        failures, best = 0, -1
        allowance = Allowance(self._deadline)
        allowance.came(request.size)
        ask = partial(self._calls.ask, "POST", allowance=allowance)
        while True:
            state = ask("/uploads", UploadState, body=body)
            if state.registered is not None:
                return state.registered
            failures, best = (failures + 1, best) if state.offset <= best else (0, state.offset)
            wait = PAUSES[min(max(failures, 0), len(PAUSES) - 1)]
            try:
                with allowance:
                    if not self._put_directly(entry, state, allowance):
                        self._put(entry, state.offset, allowance)
                whole = {"checksum": request.checksum}
                state = ask(f"/uploads/{request.id}/complete", UploadState, params=whole, timeout=COMPLETING)
                if state.registered is None:
                    self._calls.refuse("a registration without a record")
                return state.registered
            except (httpx.HTTPError, CorruptWeights, TooManyRequests, UnknownModel) as problem:
                if isinstance(problem, CorruptWeights | UnknownModel):
                    best = -1  # all of it is sent again; what was there may have had to give way
                    failures += 1
                if failures >= ATTEMPTS:
                    if isinstance(problem, Busy):
                        raise problem.problem from None
                    raise self._calls.unreachable(f"sending broke {failures} times: {problem}") from problem
                if isinstance(problem, TooManyRequests):
                    failures -= 1  # whoever waits their turn has not failed; the allowance ends it
                    wait = max(wait, problem.wait)
            with allowance:
                time.sleep(self._calls.within(allowance, wait))

    def _put_directly(self, entry: Entry, state: UploadState, allowance: Allowance) -> bool:
        """Send the whole file to the store itself, if the coordinator says how. Is it there?"""
        if not state.direct or not self._calls.direct.open:
            return False
        with entry.open() as file:
            return self._calls.direct.send(state.direct, file, entry.waiting.request.size, allowance)

    def _put(self, entry: Entry, offset: int, allowance: Allowance) -> None:
        """Send the bytes of a model from a place on."""
        size = entry.waiting.request.size
        if offset >= size:
            return

        def pieces() -> Iterator[bytes]:
            while piece := file.read(PIECE):
                self._calls.within(allowance, self._calls.timeout)
                yield piece

        with entry.open() as file:
            file.seek(offset)
            with self._calls.client.stream(
                "PUT",
                f"/uploads/{entry.waiting.request.id}",
                params={"offset": offset},
                content=pieces(),
                headers={"content-length": str(size - offset), "content-type": "application/octet-stream"},
            ) as reply:
                until = time.monotonic() + self._calls.within(allowance, self._calls.timeout)
                text = self._calls.read(reply, until)
        if reply.status_code == 409:  # what was sent before, there or elsewhere, is still being written
            raise Busy(self._calls.unreachable("others send this model"))
        if not reply.is_success:
            raise self._calls.broken(reply.status_code, text)

    # -- the rest -------------------------------------------------------------------------------

    def models(
        self,
        wanted: Filter | None = None,
        *,
        order: str = "-created",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Record]:
        """Records, the newest first unless another order is asked for."""
        params = filters(wanted or Filter()) | {"order": order}
        records: dict[str, Record] = {}
        where: dict[str, Any] = {"offset": offset}
        while limit is None or len(records) < limit:
            most = MAX_LISTED if limit is None else min(MAX_LISTED, limit - len(records))
            asked = params | where | {"limit": most}
            page = self._calls.ask("GET", "/models", list[Record], params=asked)
            if not records.keys().isdisjoint(record.id for record in page):
                self._calls.refuse("models again that it had listed before")
            records |= {record.id: record for record in page}
            if len(page) < most:
                break
            where = {"after": page[-1].id}
        return list(records.values())

    def count(self, wanted: Filter | None = None) -> int:
        """How many records there are."""
        return self._calls.ask("GET", "/count", int, params=filters(wanted or Filter()))

    def location(self, record: Record) -> str:
        """Where the files of a model are."""
        return f"{self.url}{PREFIX}/models/{record.id}"

    def show(self, name: str) -> Record:
        """The model with this id, the newest of this name, or the only one whose id begins so."""
        return self._calls.ask("GET", "/find", Record, params={"name": name})

    def graph(self, record: Record) -> Graph:
        """The graph of a model."""
        return from_json(self.graph_bytes(record))

    def graph_bytes(self, record: Record) -> bytes:
        """The graph of a model as JSON, as it was registered."""
        return bytes(self._calls.ask("GET", f"/models/{record.id}/graph", msgspec.Raw))

    def program(self, record: Record) -> bytes | None:
        """The program that a model was registered with, or None."""
        return self._calls.ask("GET", f"/models/{record.id}/program", bytes | None)  # type: ignore[arg-type]

    def weights_bytes(self, record: Record, start: int = 0) -> Iterator[bytes]:
        """The safetensors file of a model from a byte on, piece by piece."""
        path, allowance = f"/models/{record.id}/model.safetensors", Allowance(self._deadline)
        stream = Stream(self._calls, "GET", path, most=record.bytes, start=start, allowance=allowance)
        stream.total, stream.etag = record.bytes, f'"{record.checksum}"'
        return iter(stream)

    def tree(self, name: str) -> Lineage:
        """A model with all that it descends from and all that descends from it."""
        return self._calls.ask("GET", f"/models/{self.show(name).id}/tree", Lineage)

    def remove(self, name: str, *, user: str = "") -> Record:
        """Take a model out of the zoo. Its record stays, for those who descend from it."""
        meant = self.show(name)
        gone = self._calls.ask("DELETE", f"/models/{meant.id}", Record)
        return msgspec.structs.replace(gone, notes=meant.notes)

    def pin(self, name: str, pinned: bool = True, *, user: str = "") -> Record:
        """Keep a model whatever it is worth, or no longer."""
        meant = self.show(name)
        record = self._calls.ask("PUT" if pinned else "DELETE", f"/models/{meant.id}/pin", Record)
        return msgspec.structs.replace(record, notes=meant.notes)

    def tell(self, name: str, kind: str, gain: float, *, user: str = "") -> Credit:
        """Say what came of a model."""
        body = msgspec.json.encode(Told(kind=kind, gain=gain, user=user))
        return self._calls.ask("POST", f"/models/{self.show(name).id}/outcomes", Credit, body=body)

    def credit(self, record: Record) -> Credit:
        """How far what is claimed of a model is believed."""
        return self._calls.ask("GET", f"/models/{record.id}/credit", Credit)

    @contextlib.contextmanager
    def whole(self, record: Record) -> Iterator[tuple[bytes | None, Mapping[str, Array]]]:
        """A model itself, downloaded, to be run."""
        kind: Any = bytes | None
        program = self._calls.ask("GET", f"/models/{record.id}/program", kind)
        with tempfile.TemporaryDirectory(prefix="modelkeeper-") as folder:
            path = Path(folder) / "model.safetensors"
            self.download(record, path)
            yield program, open_file(path)

    def publish(self, name: str, published: bool = True, *, user: str = "") -> Record:
        """Let partners of other organisations see a model, or no longer."""
        path = f"/models/{self.show(name).id}/publish"
        return self._calls.ask("PUT" if published else "DELETE", path, Record)

    def gc(
        self,
        *,
        grace: float | None = None,
        verify: bool = False,
        progress: Progress | None = None,
        user: str = "",
    ) -> Swept:
        """Sweep what was left behind. How far that is, is not told over HTTP."""
        params: dict[str, Any] = {"verify": verify} | ({} if grace is None else {"grace": grace})
        return self._calls.ask("POST", "/gc", Swept, params=params, timeout=3600.0)

    def stats(self) -> dict[str, Any]:
        """Counts over the zoo."""
        counts = self._calls.ask("GET", "/stats", dict[str, Any])
        try:
            msgspec.convert(counts, Counts)
        except msgspec.ValidationError as problem:
            self._calls.refuse(str(problem))
        return counts

    def log(self, *, limit: int = 50, model: str | None = None, action: str | None = None) -> list[Event]:
        """What happened in the zoo, the newest first."""
        given = {"limit": min(limit, MAX_LISTED), "model": model, "action": action}
        params = {name: value for name, value in given.items() if value is not None}
        return self._calls.ask("GET", "/log", list[Event], params=params)

    def download(self, record: Record, path: Path) -> None:
        """Write a model's weights to a file, going on where an earlier call stopped."""
        download(self._calls, record, path)
