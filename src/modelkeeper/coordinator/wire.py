"""What do a coordinator and those who call it over HTTP say to each other?

    POST /v1/query                          a graph and which parents it would take  ->  Answer
    POST /v1/weights                        a graph and the parents of an answer     ->  safetensors, gathered
    GET  /v1/weights/{key}/checksum         SHA-256 of a stream that has ended there: see SEAL
    GET  /v1/models, /v1/find, /v1/stats    records and counts
    GET  /v1/models/{id}[/tree|/graph|/curve|/credit|/evidence|/signature|/model.safetensors]
    GET  /v1/starts, /v1/samples            how trainings started, how busy it was
    POST /v1/models/{id}/outcomes           what came of a start from it  ->  Credit
    GET, POST /v1/keys                      public keys that are trusted     DELETE /v1/keys/{id}
    GET  /v1/audit?since=HEAD               is the log of the zoo whole?
    GET, POST /v1/users, /projects, /tokens  who may use it, and for what: see `server.routes.accounts`
    DELETE /v1/models/{id}                  PUT, DELETE /v1/models/{id}/pin
    POST /v1/uploads                        announce a model: graph, registration, size, checksum
    PUT  /v1/uploads/{id}?offset=N          its weights, from a byte on; as often as the line breaks
    POST /v1/uploads/{id}/complete          take it into the zoo; asking again gives the same reply
    GET  /v1/models/{id}/url                where its weights can be had from the store itself: Signed

Control is JSON, weights are the bytes of a safetensors file. An error is a Problem, from which the other
side makes the same exception again. Nothing is needed between two requests but uploads, which are files: a
coordinator may be restarted at any moment, and whoever calls goes on where the line broke.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import msgspec
from msgspec import Struct

from modelkeeper import errors
from modelkeeper.errors import InvalidMeta, ModelKeeperError
from modelkeeper.meta import Query
from modelkeeper.text import one_line
from modelkeeper.zoo.accounts.holders import Token
from modelkeeper.zoo.records import MAX_PARENTS, Registration, is_id
from modelkeeper.zoo.zoo import Registered

PREFIX = "/v1"
SAFETENSORS = "application/octet-stream"
MAX_JSON = 20 * 2**20  # a graph, and some words about it
MAX_LISTED = 1000  # records in one reply
REQUEST_ID = "x-request-id"
VIA = "x-modelkeeper-via"  # ids of the coordinators that a query came through: see `coordinator.upstream`
DIRECT_BYTES = 32 * 2**20  # of a file from which on it is worth asking how to go past the coordinator
MAX_WORDS = 2000  # characters of one field of an error
# Who asks for weights with this header gets the SHA-256 of all their bytes behind them, in the same stream,
# and is told so by the same header. Whichever process sends the rest of a stream computes it. Clients that do
# not know it ask for the checksum afterwards, at the process that has sent the end.
SEAL, SEAL_BYTES = "x-modelkeeper-seal", hashlib.sha256().digest_size

# What may travel as an error: all that a service says to those who call it.
_TRAVELLING: dict[str, type[ModelKeeperError]] = {
    kind.code: kind for kind in errors.kinds() if kind.status != 500
}


class QueryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find a parent for a model."""

    graph: msgspec.Raw
    query: Query = Query()
    dry_run: bool = False
    runners_up: bool = False


class WeightsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Gather the weights of a model from the parents that a query found."""

    graph: msgspec.Raw
    query: Query = Query()
    parent: str
    parents: tuple[str, ...] = ()  # all of them, `parent` first; (): it is the only one

    @classmethod
    def of(cls, graph: bytes, query: Query, parents: Sequence[str]) -> "WeightsRequest":
        """The request for what these lend together: of one as services of any age know it."""
        several = tuple(parents) if len(parents) > 1 else ()
        return cls(graph=msgspec.Raw(graph), query=query, parent=parents[0], parents=several)

    def all_parents(self) -> tuple[str, ...]:
        """The parents, if they are ids, and no more than a model may have.

        Raises:
            InvalidMeta: They are not.
        """
        parents = self.parents or (self.parent,)
        for parent in parents:
            if not is_id(parent):
                raise InvalidMeta("parent", repr(parent[:80]), "give the id that the answer names")
        if parents[0] != self.parent or len(set(parents)) < len(parents) or len(parents) > MAX_PARENTS:
            advice = f"give `parent` first, each once, and at most {MAX_PARENTS}"
            raise InvalidMeta("parents", repr(parents[:2])[:80], advice)
        return parents


class TrustRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Trust a public key."""

    line: str  # as `modelkeeper key show` prints it
    name: str = ""  # whose it is; "": as the line says


class UploadRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Announce a model that is to be registered."""

    id: str  # chosen by who sends it: the same model sent twice is registered once
    graph: msgspec.Raw
    registration: Registration
    size: int  # of the safetensors file, in bytes
    checksum: str  # its SHA-256
    owner: str = ""  # who registers; a coordinator with users knows better
    program: bytes = b""  # what the model computes; for those who calibrate
    signature: bytes = b""  # what somebody signed of it
    evidence: bytes = b""  # held-out examples, for whoever checks what is claimed


class Told(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what came of a model."""

    kind: str
    gain: float
    user: str = ""  # who says so; a coordinator with users knows better


class UploadState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an upload is. `registered` once the model is in the zoo."""

    id: str
    offset: int
    size: int
    registered: Registered | None = None
    direct: str = ""  # a URL to which a PUT of the whole file may go; "": send it here


class Signed(Struct, frozen=True, kw_only=True):
    """Where a file can be had from the store itself, for some minutes."""

    url: str  # "": it cannot


class Checksum(Struct, frozen=True, kw_only=True):
    """What a stream of weights was, from its beginning to its end."""

    checksum: str  # SHA-256


class Counted(TypedDict):
    """How many models of one task and data set there are."""

    task: str
    data: str
    models: int
    hits: int


class Counts(TypedDict):
    """Counts over a zoo; there may be more of them."""

    models: int
    architectures: int
    bytes: int
    parameters: int
    hits: int
    states: dict[str, int]
    groups: list[Counted]
    capacity: int | None


class Account(Struct, frozen=True, kw_only=True):
    """Who calls a service, what they may do and keep there; None: as much as they like."""

    user: str  # "": a service without users
    id: str
    scope: str
    projects: tuple[str, ...]
    models: int  # that they keep
    bytes: int
    most_models: int | None
    most_bytes: int | None
    most_pins: int | None


class Quotas(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may keep, and how often they may ask; null: as the service is set."""

    bytes: int | None = None
    models: int | None = None
    pins: int | None = None
    rate: float | None = None  # requests per second


class NewUser(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Add a user."""

    name: str
    quotas: Quotas = Quotas()


class KnownUser(Struct, frozen=True, kw_only=True):
    """A user, what they have, and what they may have."""

    name: str
    id: str
    created: float
    scope: str  # the highest of their valid tokens; "": they have none, and so may do nothing
    models: int  # that they keep
    bytes: int
    projects: int  # that they are members of
    tokens: int  # that are valid
    sessions: int  # at the pages of the service
    quotas: Quotas  # that were set for them
    most: Quotas  # that hold, by these or by the settings of the service; null: as much as they like


class NewProject(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Add a project."""

    name: str
    members: tuple[str, ...] = ()  # users, by name or id


class NewToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a token."""

    scope: str
    user: str = ""  # by name or id; "": who asks
    days: float | None = None  # after which it expires; null: never, or with the token that it is made with
    note: str = ""  # what it is for


class MadeToken(Struct, frozen=True, kw_only=True):
    """A token, told this once."""

    token: str  # is nowhere kept, and cannot be asked for again
    known: Token


class Problem(Struct, frozen=True, kw_only=True):
    """An error on its way: its class, its fields, its text, and the request that failed."""

    error: str  # the name of the class right below ModelKeeperError: peers of any age know it
    code: str = ""  # of the class itself; "": the peer is older than codes are
    fields: tuple[Any, ...] = ()
    message: str = ""
    request: str = ""


def to_problem(error: ModelKeeperError, request: str = "") -> Problem:
    """An error as what travels."""
    family = [kind for kind in type(error).__mro__ if issubclass(kind, ModelKeeperError)][:-1]
    return Problem(
        error=family[-1].__name__ if family else "ModelKeeperError",
        code=error.code,
        fields=tuple(error.args),
        message=str(error),
        request=request,
    )


def to_error(problem: Problem, status: int = 0) -> ModelKeeperError | None:
    """The error that was raised on the other side, with this HTTP status; None if there is no such error."""
    kind = _TRAVELLING.get(problem.code) or _class_of(problem.error, status)
    if kind is None:
        return None
    fields = [_field(field) for field in problem.fields]
    if kind is errors.QuotaExceeded:
        fields = fields[:2]  # an older peer adds that waiting does not help
    try:
        error = kind(*fields)
        if not str(error) or (isinstance(error, errors.TooManyRequests) and not 0 <= error.wait < math.inf):
            return None
    except (TypeError, ValueError, AttributeError):  # somebody else's idea of an error
        return None
    return error


def _field(field: Any) -> Any:
    """A field of an error as the other side said it: lists as tuples, text in one line of bounded length."""
    if isinstance(field, list):
        return tuple(_field(each) for each in field[:MAX_LISTED])
    return one_line(field[:MAX_WORDS]) if isinstance(field, str) else field


def _class_of(name: str, status: int) -> type[ModelKeeperError] | None:
    """The class of an error by its name; of those below it, the one that has this HTTP status."""
    named = next((kind for kind in _TRAVELLING.values() if kind.__name__ == name), None)
    if named is None or named.status == status:
        return named
    below = (kind for kind in _TRAVELLING.values() if issubclass(kind, named) and kind.status == status)
    return next(below, named)


def weights_key(checksums: Iterable[str], graph: bytes, query: Query) -> str:
    """Names what `POST /v1/weights` streams, by its parents' checksums: the same key is the same bytes."""
    asked = f"{' '.join(checksums)}\n{query.data}\n{query.task}\n".encode()
    if query.frozen:
        asked += msgspec.json.encode(query.frozen) + b"\n"
    return hashlib.sha256(asked + graph).hexdigest()
