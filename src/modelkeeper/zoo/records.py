"""What does the zoo know of a model?

A record is what the catalog holds of one registered model: everything but its graph and its weights. It
outlives both: a model that was removed or evicted keeps its record, so that lineage stays readable.
"""

import re
import secrets
from typing import Any

from msgspec import Struct

from modelkeeper.drawings import table
from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.curves import Curve
from modelkeeper.policy.quality import Metric
from modelkeeper.zoo.restriction import Restriction

ACTIVE = "active"  # may become a parent
BARRED = "not_a_parent"  # kept, but lends to nobody
EVICTED = "evicted"  # removed by retention
REMOVED = "removed"  # removed by its owner
REPLACED = "replaced"  # a later version of the same training is there
DAMAGED = "damaged"  # its weights are not what was registered
STORED = (ACTIVE, BARRED)  # states in which there are weights
KEPT = (*STORED, DAMAGED)  # states in which there are files: what is damaged may be repaired
STATES = (ACTIVE, BARRED, EVICTED, REMOVED, REPLACED, DAMAGED)

# What an event says was done: to a model that is there, or by which it went.
REGISTERED, REFUSED, LENT, PINNED, UNPINNED = "registered", "refused", "lent", "pinned", "unpinned"
REPORTED = "reported"  # a version of a training that goes on
REPAIRED, SWEPT = "repaired", "swept"
PUBLISHED, UNPUBLISHED = "published", "unpublished"
ADMINISTERED = "administered"  # users, projects and tokens
GIVEN = "given"  # to another user
ACTIONS = (
    *(REGISTERED, REPORTED, REFUSED, LENT, PINNED, UNPINNED, PUBLISHED, UNPUBLISHED, GIVEN),
    *(REMOVED, EVICTED, DAMAGED, REPAIRED, SWEPT, ADMINISTERED),
)

PRIVATE, PROJECT, PUBLIC = VISIBILITIES = ("private", "project", "public")

MAX_NAME = 200
MAX_TAGS = 64
MAX_PARENTS = 8  # of one model
_ID = re.compile(r"[0-9a-f]{16}")
_FOLDER = re.compile(r"([0-9a-f]{16})(-[0-9a-f]{16})?")
_INTERNAL = ("key", "attempt")


class Record(Struct, frozen=True, kw_only=True):
    """One registered model."""

    id: str
    attempt: str = ""  # names its folder beside its id, where several could register under that id
    key: int = 0  # the number that the index knows it by; given by the catalog
    name: str
    owner: str  # a name, for people
    owner_id: str = ""  # who that is; "": a zoo without users
    project: str = ""
    project_id: str = ""
    visibility: str = PUBLIC
    data: str = ""
    fold: str = ""  # of the data: the one that it was validated on, in a cross-validation
    task: str = ""
    tags: tuple[str, ...] = ()
    metrics: dict[str, float] = {}
    metric: str = ""  # the one that models are compared by; "": none is known
    value: float | None = None  # of that metric, as `modelkeeper.policy.quality` normalises it
    lower_is_better: bool = False
    framework: str
    parameters: int
    bytes: int
    fingerprint: str
    graph: str  # digest of the graph's bytes
    checksum: str  # SHA-256 of model.safetensors
    program: str = ""  # SHA-256 of program.json; "": there is none, or nobody has noted it
    evidence: str = ""  # SHA-256 of evidence.safetensors, held-out examples that anyone may check it on
    signer: str = ""  # id of the key that signed it; "": nobody did
    licence: str = ""  # what others may do with it, as an SPDX expression; "": nobody said
    published: bool = False  # may other organisations have it?
    origin: str = ""  # the zoo that it came from, if it was not registered here first
    parent: str = ""  # id of the model whose weights it started from
    more_parents: tuple[str, ...] = ()  # ids of those whose units lie beside that parent's, in order
    similarity: float | None = None  # to that parent
    run: str = ""  # the training that it is a version of; "": it was registered once, as a whole
    finished: bool = True  # False: its training goes on, or was stopped before its end
    created: float
    last_used: float
    hits: int = 0  # how often it lent its weights
    pinned: bool = False
    state: str = ACTIVE
    reason: str = ""  # why it is in that state
    twin: str = ""  # the most similar better model of the same task and data
    twin_similarity: float = 0.0
    notes: tuple[str, ...] = ()  # what who asks should know: in no catalog, but said of what it tells

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of all models whose weights it started from."""
        return (self.parent, *self.more_parents) if self.parent else ()

    @property
    def full_name(self) -> str:
        """Its name and whose it is."""
        return f"{self.owner}/{self.name}" if self.owner else self.name

    @property
    def folder(self) -> str:
        """Where its files are in the blob store: a place that no other registration ever writes to."""
        return folder_of(self.id, self.attempt)

    @property
    def voice(self) -> str:
        """Whose it is, as far as that is known: where there are users their id, else a name."""
        return self.owner_id or self.owner

    @property
    def group(self) -> tuple[str, str, str, bool]:
        """Models of which this is the same are peers: they are judged by each other."""
        return self.task, self.data, self.metric, self.lower_is_better

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in _INTERNAL}

    def _repr_html_(self) -> str:
        """In a notebook: what is known of it."""
        told = {name: value for name, value in self.to_dict().items() if value not in ("", None, (), [], {})}
        return table(
            ("", ""), [(name.replace("_", " "), value) for name, value in told.items()], self.full_name
        )


KEPT_FIELDS = tuple(name for name in Record.__struct_fields__ if name != "notes")
# Fields that records can be ordered by; lists and mappings have no order that all databases know.
_UNORDERED = ("attempt", "tags", "metrics", "more_parents")
SORTABLE = tuple(name for name in KEPT_FIELDS if name not in _UNORDERED)


class Registration(Struct, frozen=True, kw_only=True):
    """What the zoo is told of a trained model."""

    name: str
    metric: Metric | None = None  # None: how good it is, is not known
    metrics: dict[str, float] = {}
    data: str = ""
    fold: str = ""
    task: str = ""
    tags: tuple[str, ...] = ()
    project: str = ""
    visibility: str = ""  # "": nobody said, see `seen_by`
    parent: str = ""
    more_parents: tuple[str, ...] = ()
    similarity: float | None = None
    run: str = ""  # 16 hexadecimal digits; a later version of the same run takes the place of this one
    finished: bool = True
    origin: str = ""  # the zoo that it comes from, if it was registered elsewhere first
    licence: str = ""  # an SPDX expression; "": nobody says what others may do with it
    curve: Curve | None = None  # how its training went; None: nobody says
    start: str = ""  # id of the start that it was trained from, as the answer had it

    @property
    def parents(self) -> tuple[str, ...]:
        """The names or ids of all models that it started from."""
        return (self.parent, *self.more_parents) if self.parent else ()

    @property
    def seen_by(self) -> str:
        """Its visibility: unless somebody said otherwise, that of its project, if it has one."""
        return self.visibility or (PROJECT if self.project else PUBLIC)


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened in the zoo, for `modelkeeper log`."""

    at: float
    action: str  # one of ACTIONS
    model: str = ""
    user: str = ""
    detail: str = ""
    number: int = 0  # in the order in which they were written; given by the catalog
    data: dict[str, Any] = {}  # what the detail says and more, for programs: see `event_data`

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Viewer(Struct, frozen=True):
    """Who asks: sees public models, those of these projects, and the user's own. None sees all."""

    user: str  # an id, as those of the projects
    projects: tuple[str, ...] = ()
    name: str = ""  # as the log has it, since the user is there
    since: float = 0.0
    all: bool = False  # administers the zoo, and so sees all
    partner: bool = False  # of another organisation: sees what was published, and nothing else


class Filter(Struct, frozen=True, kw_only=True):
    """Which records are meant. What is left out does not filter."""

    viewer: Viewer | None = None
    states: tuple[str, ...] = STORED
    task: str | None = None
    data: str | None = None
    tags: tuple[str, ...] = ()  # each of them
    text: str | None = None  # somewhere in its name
    restrictions: tuple[Restriction, ...] = ()  # each of them
    origin: str | None = None  # the zoo that it came from
    least_bytes: int | None = None  # of weights
    most_bytes: int | None = None
    least_value: float | None = None  # of the metric that it is compared by
    most_value: float | None = None
    fingerprints: tuple[str, ...] | None = None  # of architectures; (): none, so that nothing passes

    @property
    def ranges(self) -> dict[str, float | None]:
        """The bounds of numbers, by name."""
        return {name: getattr(self, name) for name in RANGES}


RANGES = ("least_bytes", "most_bytes", "least_value", "most_value")


def new_id() -> str:
    """An id that nobody else makes."""
    return secrets.token_hex(8)


def folder_of(model: str, attempt: str = "") -> str:
    """The folder of a model's files."""
    return f"models/{model}-{attempt}" if attempt else f"models/{model}"


def model_of(folder: str) -> str:
    """The id of the model whose folder this is, by its name or its path; "": it is no such folder."""
    named = _FOLDER.fullmatch(folder.rpartition("/")[2])
    return named[1] if named is not None else ""


def is_id(text: str) -> bool:
    """Is it an id, and so nothing that could be a path or a pattern?"""
    return _ID.fullmatch(text) is not None


def checked_name(what: str, text: object, *, empty: bool = True, longest: int = MAX_NAME) -> str:
    """A name as people write it: one printable line."""
    if not isinstance(text, str):
        raise InvalidMeta(what, repr(text)[:80], "it must be text")
    text = text.strip()
    if len(text) > longest:
        raise InvalidMeta(what, f"{text[:40]!r}…", f"it has {len(text)} characters; at most {longest}")
    if not text.isprintable() or (not text and not empty):
        raise InvalidMeta(what, repr(text[:80]), "it must be one printable line, and not empty")
    return text
