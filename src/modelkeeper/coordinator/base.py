"""What can be asked of a coordinator, wherever it is?

    Coordinator          query, register, list, remove: in this process (`local`) and over HTTP (`remote`)
    ServedCoordinator    what a service needs besides: whose eyes see, bytes as they lie, accounts

All of them are safe to use from several threads. Whoever holds one takes it by these types, so that mypy and
the contract suite (tests/coordinator/test_contract.py) see that both coordinators are alike.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from modelkeeper.coordinator.history import History, ServedHistory
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.listing import ServedListing
from modelkeeper.warmstart.loan import Loan
from modelkeeper.zoo.records import Record

if TYPE_CHECKING:
    from modelkeeper.graph import Graph
    from modelkeeper.meta import Query
    from modelkeeper.policy.credit import Credit
    from modelkeeper.settings import Settings
    from modelkeeper.transform import Decisions
    from modelkeeper.weights import Array, Header
    from modelkeeper.zoo.accounts.accounts import Accounts
    from modelkeeper.zoo.care.audit import Audited
    from modelkeeper.zoo.care.gc import Swept
    from modelkeeper.zoo.files.staged import Staged
    from modelkeeper.zoo.records import Event, Filter, Registration, Viewer
    from modelkeeper.zoo.replicas.parts import Parts
    from modelkeeper.zoo.replicas.replica import Replica
    from modelkeeper.zoo.signatures import Sign
    from modelkeeper.zoo.trust import TrustedKey
    from modelkeeper.zoo.zoo import Registered

Progress = Callable[[float, float], None]  # is told how much of how much is done


class Coordinator(History, Protocol):
    """One zoo and all that can be asked of it, in this process or behind HTTP."""

    def close(self) -> None:
        """Let go of the zoo, or hang up."""

    def query(
        self, graph: "Graph", query: "Query", *, dry_run: bool = False, runners_up: bool = False
    ) -> Loan:
        """Find a parent for a model, and plan what it lends.

        Args:
            graph: The model.
            query: Which parents it would take.
            dry_run: Do not count the parent as used.
            runners_up: Look for more candidates than the choice needs, to explain it.
        """

    def register(
        self,
        graph: "Graph",
        registration: "Registration",
        tensors: "Iterable[tuple[str, Array]]",
        *,
        owner: str = "",
        model_id: str = "",
        program: bytes = b"",
        signature: bytes = b"",
        evidence: bytes = b"",
        sign: "Sign | None" = None,
    ) -> "Registered":
        """Take a trained model into the zoo. When this returns, it is on the disk.

        Args:
            graph: The model.
            registration: What is known of it.
            tensors: Its weights, by the names of the graph.
            owner: Who registers; a coordinator with users knows better.
            model_id: 16 hexadecimal digits; the same weights with the same id are registered once.
            program: What the model computes, for those who calibrate.
            signature: What somebody signed of it: see `signing`.
            evidence: Held-out examples, for whoever checks what is claimed: see `zoo.evidence`.
            sign: Makes the signature, if there is none yet, when all checksums are known.

        Raises:
            ModelRefused: It is an outlier below its peers, or larger than the zoo's capacity.
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            InvalidSignature: It was signed, but not as what it is.
        """

    def models(
        self,
        wanted: "Filter | None" = None,
        *,
        order: str = "-created",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Record]:
        """Records, the newest first unless another order is asked for."""

    def count(self, wanted: "Filter | None" = None) -> int:
        """How many records there are."""

    def show(self, name: str) -> Record:
        """The model with this id, the only one whose id begins so, or the newest of this name.

        Raises:
            UnknownModel: There is none, or there are several.
        """

    def graph(self, record: Record) -> "Graph":
        """The graph of a model."""

    def evidence(self, record: Record) -> bytes | None:
        """The evidence that a model was registered with, or None."""

    def signature(self, record: Record) -> bytes | None:
        """What somebody signed of a model, or None."""

    def graph_bytes(self, record: Record) -> bytes:
        """The graph of a model as JSON, as it was registered."""

    def program(self, record: Record) -> bytes | None:
        """The program that a model was registered with, or None."""

    def weights_bytes(self, record: Record, start: int = 0) -> Iterator[bytes]:
        """The safetensors file of a model from a byte on, piece by piece.

        Raises:
            CorruptWeights: It is missing, or not as long as it was.
        """

    def location(self, record: Record) -> str:
        """Where the files of a model are."""

    def tree(self, name: str) -> Lineage:
        """A model with all that it descends from and all that descends from it."""

    def remove(self, name: str, *, user: str = "") -> Record:
        """Take a model out of the zoo. Its record stays, for those who descend from it."""

    def pin(self, name: str, pinned: bool = True, *, user: str = "") -> Record:
        """Keep a model whatever it is worth, or no longer."""

    def tell(self, name: str, kind: str, gain: float, *, user: str = "") -> "Credit":
        """Say what came of a model: a race that a start from it won or lost, a check of what it claims.

        Args:
            name: The model, by its id.
            kind: "raced" or "checked".
            gain: From -1 to 1; above 0 is good.
            user: Who says so; a coordinator with users knows better, and what owners say of their own
                models does not count.

        Raises:
            NotAllowed: The model was not lent to who says so.
        """

    def credit(self, record: Record) -> "Credit":
        """How far what is claimed of a model is believed, and how many found what."""

    def whole(self, record: Record) -> "AbstractContextManager[tuple[bytes | None, Mapping[str, Array]]]":
        """A model itself, to be run, for as long as the context is open: its program, if any, and tensors."""

    def publish(self, name: str, published: bool = True, *, user: str = "") -> Record:
        """Let partners of other organisations see a model, or no longer.

        Raises:
            InvalidMeta: It has no licence.
        """

    def gc(
        self,
        *,
        grace: float | None = None,
        verify: bool = False,
        progress: Progress | None = None,
        user: str = "",
    ) -> "Swept":
        """Sweep what was left behind, and take out what is damaged: see `zoo.care.gc`."""

    def stats(self) -> dict[str, Any]:
        """Counts over the zoo."""

    def log(self, *, limit: int = 50, model: str | None = None, action: str | None = None) -> "list[Event]":
        """What happened in the zoo, the newest first."""

    def audit(self, since: str = "") -> "Audited":
        """Verify the chained log of the zoo, and compare it with the catalog: see `zoo.care.audit`.

        Args:
            since: An earlier head, as an audit gave it: is it still what the log began with?

        Raises:
            InvalidMeta: `since` is no head.
        """

    def trusted_keys(self) -> "list[TrustedKey]":
        """The public keys that the zoo trusts, and those that it did."""

    def trust_key(self, line: str, name: str = "", *, user: str = "") -> "TrustedKey":
        """Trust a public key, as `PublicKey.line` has it; by the name in it, unless another is given."""

    def revoke_key(self, key: str, *, user: str = "") -> "TrustedKey":
        """Trust a public key no more, by its id or the beginning of it."""


class ServedLoan(Loan, Protocol):
    """A loan that can be sent as the bytes of a safetensors file."""

    @property
    def plan(self) -> "Decisions | None":
        """What is taken from where; None for a cold start."""

    @property
    def header(self) -> "Header":
        """Where each tensor lies in a file of these weights."""

    def stream(self) -> Iterator[memoryview | bytes]:
        """The bytes of that file, made tensor by tensor."""


class ServedCoordinator(Coordinator, ServedListing, ServedHistory, Protocol):
    """A coordinator that a service offers to many: only one in this process can.

    With a `viewer` things are as that user may see them; None sees everything.
    """

    @property
    def settings(self) -> "Settings":
        """How its zoo is kept."""

    @property
    def accounts(self) -> "Accounts":
        """Who may use a service of it, and for what."""

    def ready(self) -> None:
        """Return if the catalog and the store answer.

        Raises:
            StoreSilent: The store does not, in time.
            ZooUnusable: The catalog does not, or the store is not the one that it belongs to.
        """

    @property
    def replica(self) -> "Replica":
        """What a service of it shares with other services of the same zoo."""

    def follow(self) -> None:
        """Bring the search index up to date, ahead of queries; the first time it is opened.

        Raises:
            NotReady: It lies in shards that have not read the catalog yet.
            ShardsUnreachable: What runs them does not answer.
        """

    def share_index(self) -> None:
        """Put the search index where new replicas find it, if enough has changed. The leader does so."""

    def upload_folder(self) -> Path:
        """Where models lie while they are sent: where the store is local, on its disk."""

    def weights_url(self, record: Record) -> str:
        """A URL of the store for the file of a model's weights, for some minutes; "": it gives none."""

    def upload_parts(self) -> "Parts | None":
        """Where they lie in a store that is not local; None: in that folder."""

    def query(
        self,
        graph: "Graph",
        query: "Query",
        *,
        viewer: "Viewer | None" = None,
        dry_run: bool = False,
        runners_up: bool = False,
        seconds: float = math.inf,
        via: Sequence[str] = (),
    ) -> ServedLoan:
        """Find a parent for a model; after so many seconds with what was found by then.

        `via` are the coordinators that the query came through.
        """

    def lend(
        self,
        graph: "Graph",
        query: "Query",
        parents: Sequence[str],
        viewer: "Viewer | None" = None,
        *,
        plan: "Decisions | None" = None,
        seconds: float = math.inf,
    ) -> ServedLoan:
        """What parents that are known by their ids lend to a model: the weights that `query` found, again.

        With the plan that `query` made for just these, none is made; else one within so many seconds.

        Raises:
            TooLongToPlan: That was not enough.
            UnknownModel: One of them is not there, or not any more.
            CorruptWeights: The file of one is damaged.
        """

    def register(
        self,
        graph: "Graph",
        registration: "Registration",
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
    ) -> "Registered":
        """Take a trained model into the zoo, also from a file that lies in the upload folder.

        Whose it is, and of which project, the ids say; names are labels.
        """

    def show(self, name: str, viewer: "Viewer | None" = None) -> Record:
        """One record, as `Coordinator.show`."""

    def tree(self, name: str, viewer: "Viewer | None" = None) -> Lineage:
        """The lineage of a model, as far as it may be seen."""

    def remove(self, name: str, *, user: str = "", viewer: "Viewer | None" = None) -> Record:
        """Take a model out of the zoo."""

    def pin(
        self,
        name: str,
        pinned: bool = True,
        *,
        user: str = "",
        viewer: "Viewer | None" = None,
        most: int | None = None,
    ) -> Record:
        """Keep a model whatever it is worth, or no longer; QuotaExceeded if its owner has `most` pinned."""

    def tell(
        self, name: str, kind: str, gain: float, *, user: str = "", viewer: "Viewer | None" = None
    ) -> "Credit":
        """Say what came of a model."""

    def was_lent(self, record: Record, user: str) -> bool:
        """Was a model lent to a user, by their id?"""

    def publish(
        self, name: str, published: bool = True, *, user: str = "", viewer: "Viewer | None" = None
    ) -> Record:
        """Let partners of other organisations see a model, or no longer."""

    def stats(self, *, viewer: "Viewer | None" = None) -> dict[str, Any]:
        """Counts over the models that may be seen."""

    def log(
        self,
        *,
        limit: int = 50,
        model: str | None = None,
        action: str | None = None,
        viewer: "Viewer | None" = None,
        user: str | None = None,
        before: int | None = None,
    ) -> "list[Event]":
        """What happened to the models that may be seen, the newest first; `before` the event of a number."""

    def prune_events(self, before: float) -> int:
        """Delete what the log says of the time before. How many events?"""

    def kept_by(self, owner_id: str) -> tuple[int, int]:
        """How many models a user keeps, by their id, and how many bytes of weights."""
