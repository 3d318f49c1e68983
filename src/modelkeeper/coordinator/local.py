"""The coordinator in this process: query, register, list and remove over one zoo.

    coordinator = LocalCoordinator(Settings(home="zoo/"))
    loan = coordinator.query(graph, Query(task="classification", data="Flowers102"))
    loan.answer                      parent or cold start, why, and what will be transferred
    loan.weights()                   the child's tensors, gathered one by one from the parent's

It knows graphs and arrays, no framework; whoever holds a model (a client) describes it first. What only
queries and registrations need (NumPy, matching, transforming) is imported when they come.
"""

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modelkeeper.coordinator.base import Progress
from modelkeeper.coordinator.claims import LocalClaims
from modelkeeper.coordinator.family import family, with_parent_ids
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.local_history import LocalHistory
from modelkeeper.coordinator.local_listing import LocalListing
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.coordinator.local_replica import LocalReplica
from modelkeeper.coordinator.local_trust import LocalTrust
from modelkeeper.coordinator.places import Places
from modelkeeper.errors import (
    CorruptWeights,
    InvalidWeights,
    TooLongToPlan,
    UnknownModel,
    UnreadableWeights,
)
from modelkeeper.graph import Graph
from modelkeeper.patience import OutOfPatience
from modelkeeper.settings import Settings, login
from modelkeeper.text import enumeration
from modelkeeper.warmstart.answer import Answer, Parent
from modelkeeper.zoo.care.gc import Swept, sweep
from modelkeeper.zoo.records import (
    ACTIVE,
    STORED,
    Event,
    Record,
    Registration,
    Viewer,
)
from modelkeeper.zoo.restriction import Restriction
from modelkeeper.zoo.zoo import Registered, Zoo

if TYPE_CHECKING:
    from modelkeeper.coordinator.planning import Planned
    from modelkeeper.coordinator.upstream.upstreams import Upstreams
    from modelkeeper.meta import Query
    from modelkeeper.transform import Decisions
    from modelkeeper.weights import Array, Weights
    from modelkeeper.zoo.accounts.accounts import Accounts
    from modelkeeper.zoo.files.staged import Staged
    from modelkeeper.zoo.replicas.parts import Parts
    from modelkeeper.zoo.signatures import Sign

ATTEMPTS = 8  # parents to try if one turns out to be damaged
AT_ONCE = 4  # queries for each core: so many lose nothing by each other, many more do (`make service`)


class LocalCoordinator(LocalClaims, LocalListing, LocalHistory, LocalTrust, LocalReplica):
    """One zoo in this process and all that can be asked of it: a `ServedCoordinator`."""

    def __init__(self, settings: Settings, user: str = "") -> None:
        """Open a zoo; a new home is made. `user` is whose models a bare name means first."""
        self.settings = settings
        self.zoo = Zoo(settings)
        self._me = Viewer("", name=user or login(), all=True)
        self._upstreams: Upstreams | None = None
        self._planned: Planned | None = None
        self._places = Places(AT_ONCE * (settings.threads or os.cpu_count() or 1))
        if settings.upstreams:
            from modelkeeper.coordinator.upstream import upstreams

            self._upstreams = upstreams.Upstreams(self.zoo, settings, self.upload_folder)

    def close(self) -> None:
        """Let go of the zoo."""
        self.zoo.close()

    # -- query ----------------------------------------------------------------------------------

    def query(
        self,
        graph: Graph,
        query: "Query",
        *,
        viewer: Viewer | None = None,
        dry_run: bool = False,
        runners_up: bool = False,
        seconds: float = math.inf,
        via: Sequence[str] = (),
    ) -> LocalLoan:
        """Find a parent for a model, and plan what it lends.

        Args:
            graph: The model.
            query: Which parents it would take.
            viewer: Whose eyes it is seen with. Default: everything is seen.
            dry_run: Do not count the parent as used.
            runners_up: Look for more candidates than the choice needs, to explain it.
            seconds: After so many it ends with what it has found and planned; the answer then says so.
            via: The coordinators that it came through: see `upstream`.

        Of many threads that ask, a few for each core search at once; the others wait in the order they came.
        """
        with self._places.one():
            return self._query(graph, query, viewer, dry_run, runners_up, seconds, via)

    def _query(
        self,
        graph: Graph,
        query: "Query",
        viewer: Viewer | None,
        dry_run: bool,
        runners_up: bool,
        seconds: float,
        via: Sequence[str],
    ) -> LocalLoan:
        from modelkeeper.coordinator.candidates import Request
        from modelkeeper.coordinator.clock import Clock
        from modelkeeper.coordinator.search import Search
        from modelkeeper.matching import prepare
        from modelkeeper.policy.selection import Choice

        clock, prepared = Clock(seconds), prepare(graph)
        clock("prepare")
        request = Request(graph, prepared, query, viewer, runners_up, dry_run, asker=viewer or self._me)
        search = Search(self.zoo, self.settings, request, clock, self._remembered())
        warnings: list[str] = []
        upstreams = self._upstreams
        for _ in range(ATTEMPTS):
            pool = search.find()
            choice = search.choose(pool)
            if upstreams is not None and search.expects(choice) <= self.settings.upstream_below:
                ask, upstreams = upstreams.bring, None
                if ask(request, search.least(choice), clock, warnings, via):
                    continue  # with one more to choose from
            choice, lenders = search.settle(pool, choice)
            if lenders is None:
                break
            parents = [pool.records[candidate.id] for candidate in lenders.candidates]
            sources: list[Weights] = []
            try:
                for parent in parents if not dry_run else ():
                    sources.append(self.zoo.weights(parent))
            except (CorruptWeights, InvalidWeights, UnreadableWeights) as problem:
                warnings.append(f"{parent.name} could not be read and was taken out: {problem}")
                self.zoo.take_out(parent, problem)
                choice = Choice(None, "the models that fit best could not be read")
                continue  # with one fewer to choose from
            clock("read")
            answer = search.answer(pool, choice, lenders, [*warnings, *self._damaged_records()])
            answer = self._started(answer, request, search.parts(choice, lenders))
            return LocalLoan(answer, lenders.plan, sources, partial(self.zoo.program, parents[0]))
        answer = search.answer(pool, choice, warnings=[*warnings, *self._damaged_records()])
        return LocalLoan(self._started(answer, request))

    def _remembered(self) -> "Planned":
        """The plans that were made lately."""
        from modelkeeper.coordinator.planning import Planned

        self._planned = self._planned or Planned()
        return self._planned

    def lend(
        self,
        graph: Graph,
        query: "Query",
        parents: Sequence[str],
        viewer: Viewer | None = None,
        *,
        plan: "Decisions | None" = None,
        seconds: float = math.inf,
    ) -> LocalLoan:
        """What parents that are known by their ids lend to a model: the weights that `query` found, again.

        With the plan that `query` made for just these, none is made; else one within so many seconds.

        Raises:
            TooLongToPlan: That was not enough.
            UnknownModel: One of them is not there, or not any more, or may not lend.
            CorruptWeights: The file of one is damaged.
        """
        records = [self.zoo.catalog.get(parent, viewer) for parent in parents]
        allowed = Restriction.of(self.settings)
        if allowed and (barred := set(parents) - self.zoo.catalog.names.passing(parents, allowed)):
            raise UnknownModel(sorted(barred)[0])
        for record in records:
            if record.state != ACTIVE:
                raise UnknownModel(record.id)
        try:
            return self._loan_of(records, graph, query, plan, seconds)
        except OutOfPatience:
            names = enumeration([record.name for record in records])
            raise TooLongToPlan(names, f"{seconds:g}") from None

    def _loan_of(
        self,
        records: Sequence[Record],
        graph: Graph,
        query: "Query",
        plan: "Decisions | None",
        seconds: float,
    ) -> LocalLoan:
        """What models that are there lend by a plan, or by one that is made now."""
        from modelkeeper.coordinator.planning import plan_for

        plan = plan or plan_for(records, graph, query, self.zoo.catalog, seconds, self._remembered())
        parents = tuple(Parent(id=record.id, name=record.name) for record in records)
        answer = Answer(parent=records[0].id, parents=parents)
        return LocalLoan(answer, plan, [self.zoo.weights(record) for record in records])

    # -- register and the rest ------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        registration: Registration,
        tensors: "Iterable[tuple[str, Array]] | Staged",
        *,
        owner: str = "",
        model_id: str = "",
        program: bytes = b"",
        signature: bytes = b"",
        evidence: bytes = b"",
        sign: "Sign | None" = None,
        owner_id: str = "",
        project_id: str = "",
    ) -> Registered:
        """Take a trained model into the zoo: see `Zoo.register`.

        Raises:
            UnknownModel: No model is called as one of its parents is said to be.
            InvalidMeta: It is named as if it were somebody else's.
        """
        self.zoo.catalog.names.expect_own(registration.name, owner, registration.project)
        registration = with_parent_ids(registration, self.show)
        return self.zoo.register(
            graph,
            registration,
            tensors,
            owner,
            model_id,
            program,
            owner_id=owner_id,
            project_id=project_id,
            signature=signature,
            evidence=evidence,
            sign=sign,
        )

    def show(self, name: str, viewer: Viewer | None = None) -> Record:
        """The model with this id, the newest of this name, or the only one whose id begins so."""
        record = self.zoo.catalog.get(name, viewer or self._me)
        return self.zoo.catalog.names.noted([record], viewer)[0]

    def graph(self, record: Record) -> Graph:
        """The graph of a model."""
        return self.zoo.catalog.graph(record.graph)

    def location(self, record: Record) -> str:
        """Where the files of a model are."""
        return f"{self.settings.blobs_url.rstrip('/')}/{record.folder}"

    def tree(self, name: str, viewer: Viewer | None = None) -> Lineage:
        """A model with all that it descends from and all that descends from it: see `family`."""
        return family(self.zoo.catalog, self.show(name, viewer), viewer)

    def remove(self, name: str, *, user: str = "", viewer: Viewer | None = None) -> Record:
        """Take a model out of the zoo. Its record stays, for those who descend from it."""
        record = self.show(name, viewer)
        if not self.zoo.remove(record, user=user):
            raise UnknownModel(name)
        return record

    def pin(
        self,
        name: str,
        pinned: bool = True,
        *,
        user: str = "",
        viewer: Viewer | None = None,
        most: int | None = None,
    ) -> Record:
        """Keep a model whatever it is worth, or no longer; no more than `most` of its owner."""
        record = self.show(name, viewer)
        if record.state not in STORED:
            raise UnknownModel(name)
        self.zoo.pin(record, pinned, user, most)
        return msgspec.structs.replace(record, pinned=pinned)

    def publish(
        self, name: str, published: bool = True, *, user: str = "", viewer: Viewer | None = None
    ) -> Record:
        """Let partners of other organisations see a model, or no longer."""
        record = self.show(name, viewer)
        if record.state not in STORED:
            raise UnknownModel(name)
        self.zoo.publish(record, published, user)
        return msgspec.structs.replace(record, published=published)

    def gc(
        self,
        *,
        grace: float | None = None,
        verify: bool = False,
        progress: Progress | None = None,
        user: str = "",
    ) -> Swept:
        """Sweep what was left behind: see `zoo.care.gc`."""
        return sweep(self.zoo, grace=grace, verify=verify, progress=progress, user=user)

    def stats(self, *, viewer: Viewer | None = None) -> dict[str, Any]:
        """Counts over the zoo."""
        partner = viewer is not None and viewer.partner
        leader = self.replica.who_leads() if viewer is None or viewer.all else ""
        of_all = {"capacity": None if partner else self.settings.capacity, "leader": leader}
        return self.zoo.catalog.stats(viewer) | of_all

    def log(
        self,
        *,
        limit: int = 50,
        model: str | None = None,
        action: str | None = None,
        viewer: Viewer | None = None,
        user: str | None = None,
        before: int | None = None,
    ) -> list[Event]:
        """What happened in the zoo, the newest first."""
        chosen = {"model": model, "action": action, "user": user, "before": before}
        return self.zoo.catalog.log(limit=limit, viewer=viewer, **chosen)

    # -- what a service needs besides -----------------------------------------------------------

    @property
    def accounts(self) -> "Accounts":
        """Who may use a service of this zoo, and for what."""
        from modelkeeper.zoo.accounts.accounts import Accounts

        return Accounts(self.zoo.catalog, by=self._me.name)

    def upload_folder(self) -> Path:
        """Where models lie while they are sent; on the disk of the store, if that is local."""
        if (staging := self.zoo.blobs.staging) is not None:
            return staging
        passing = self.settings.in_memory
        return Path(tempfile.mkdtemp(prefix="modelkeeper-")) if passing else self.settings.folder / "uploads"

    def weights_url(self, record: Record) -> str:
        """A URL of the store for the file of a model's weights."""
        from modelkeeper.zoo.files.blobs import WEIGHTS

        return self.zoo.blobs.sign("GET", f"{record.folder}/{WEIGHTS}")

    def upload_parts(self) -> "Parts | None":
        """Where models lie in a store that is not local, while they are sent."""
        return self.zoo.parts

    def kept_by(self, owner_id: str) -> tuple[int, int]:
        """How many models a user keeps, by their id, and how many bytes of weights."""
        return self.zoo.catalog.kept_by(owner_id)

    def graph_bytes(self, record: Record) -> bytes:
        """The graph of a model as JSON, as it was registered."""
        return self.zoo.catalog.graph_bytes(record.graph)

    def program(self, record: Record) -> bytes | None:
        """The program that a model was registered with, or None."""
        return self.zoo.program(record)

    def weights_bytes(self, record: Record, start: int = 0) -> Iterator[bytes]:
        """The safetensors file of a model from a byte on, piece by piece.

        Raises:
            CorruptWeights: At once: it is missing, or not as long as it was.
        """
        from modelkeeper.zoo.files.blobs import WEIGHTS

        self.zoo.blobs.weights(record.folder, record.bytes)
        return self.zoo.blobs.chunks(f"{record.folder}/{WEIGHTS}", start)
