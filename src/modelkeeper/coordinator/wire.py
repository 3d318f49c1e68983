"""What do a coordinator and those who call it over HTTP say to each other?

    POST /v1/query                          a graph and which parents it would take  ->  Answer
    POST /v1/weights                        a graph and the parent of an answer      ->  safetensors, gathered
    GET  /v1/weights/{key}/checksum         SHA-256 of a stream that has ended
    GET  /v1/models, /v1/find, /v1/stats    records and counts
    GET  /v1/models/{id}[/tree|/graph|/model.safetensors]
    DELETE /v1/models/{id}                  PUT, DELETE /v1/models/{id}/pin
    POST /v1/uploads                        announce a model: graph, registration, size, checksum
    PUT  /v1/uploads/{id}?offset=N          its weights, from a byte on; as often as the line breaks
    POST /v1/uploads/{id}/complete          take it into the zoo; asking again gives the same reply

Control is JSON, weights are the bytes of a safetensors file. An error is a Problem, from which the other
side makes the same exception again. Nothing is kept between two requests but uploads, which are files: a
coordinator may be restarted at any moment, and whoever calls goes on where the line broke.
"""

import hashlib
import math
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper import errors
from modelkeeper.errors import ModelKeeperError
from modelkeeper.meta import Query
from modelkeeper.zoo.records import Registration
from modelkeeper.zoo.zoo import Registered

PREFIX = "/v1"
SAFETENSORS = "application/octet-stream"
MAX_JSON = 20 * 2**20  # a graph, and some words about it
MAX_LISTED = 1000  # records in one reply
REQUEST_ID = "x-request-id"

# What may travel as an error, and the HTTP status that goes with it.
STATUS: dict[str, int] = {
    "InvalidGraph": 422,
    "InvalidWeights": 422,
    "InvalidMeta": 422,
    "InvalidMetric": 422,
    "InvalidSetting": 422,
    "TooLargeToMatch": 422,
    "ModelRefused": 409,
    "UnknownModel": 404,
    "CorruptWeights": 410,
    "NotAllowed": 403,  # 401 if there is no valid token
    "QuotaExceeded": 403,  # 429 if waiting helps
    "ZooUnusable": 503,
}


class QueryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find a parent for a model."""

    graph: msgspec.Raw
    query: Query = Query()
    dry_run: bool = False
    runners_up: bool = False


class WeightsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gather the weights of a model from the parent that a query found."""

    graph: msgspec.Raw
    query: Query = Query()
    parent: str


class UploadRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Announce a model that is to be registered."""

    id: str  # chosen by who sends it: the same model sent twice is registered once
    graph: msgspec.Raw
    registration: Registration
    size: int  # of the safetensors file, in bytes
    checksum: str  # its SHA-256
    owner: str = ""  # who registers; a coordinator with users knows better
    program: bytes = b""  # what the model computes; for those who calibrate


class UploadState(Struct, frozen=True, kw_only=True):
    """How far an upload is. `registered` once the model is in the zoo."""

    id: str
    offset: int
    size: int
    registered: Registered | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """An error on its way: its class, its fields, its text, and the request that failed."""

    error: str
    fields: tuple[Any, ...] = ()
    message: str = ""
    request: str = ""


def to_problem(error: ModelKeeperError, request: str = "") -> Problem:
    """An error as what travels."""
    return Problem(error=type(error).__name__, fields=tuple(error.args), message=str(error), request=request)


def to_error(problem: Problem) -> ModelKeeperError | None:
    """The error that was raised on the other side; None if there is no such error."""
    if problem.error not in STATUS:
        return None
    fields = [tuple(each) if isinstance(each, list) else each for each in problem.fields]
    kind: type[ModelKeeperError] = getattr(errors, problem.error)
    try:
        made = kind(*fields)
        if not str(made) or (isinstance(made, errors.QuotaExceeded) and not 0 <= made.wait < math.inf):
            return None
    except (TypeError, ValueError, AttributeError):  # somebody else's idea of an error
        return None
    return made


def weights_key(parent_checksum: str, graph: bytes, query: Query) -> str:
    """Names what `POST /v1/weights` streams: the same key is the same bytes."""
    told = f"{parent_checksum}\n{query.data}\n{query.task}\n".encode()
    return hashlib.sha256(told + graph).hexdigest()
