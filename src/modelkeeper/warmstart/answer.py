"""What did the keeper do for a model? The answer to a query, for programs and for people.

warmed, meta = client.query_for_model(model, ...)
meta["parent"], meta["similarity"], meta.exact       fields, as a mapping or as attributes
meta["advice"]                                       how to train from here: see `advice`
meta.calibration, meta.probe                         objects; as meta["probe"] they are plain data
print(meta)                                          a readable report
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from modelkeeper.frontends.fit_tasks import Calibration
from modelkeeper.text import enumeration
from modelkeeper.warmstart.advice import Advice
from modelkeeper.warmstart.race.rules import Race

if TYPE_CHECKING:
    from rich.console import RenderableType


class Rival(Struct, frozen=True, kw_only=True):
    """A model that was considered and not taken."""

    id: str
    name: str
    similarity: float
    metric: str = ""
    value: float | None = None
    framework: str = ""
    owner: str = ""
    why: str = ""

    @property
    def full_name(self) -> str:
        """Its name and whose it is."""
        return f"{self.owner}/{self.name}" if self.owner else self.name


class Parent(Struct, frozen=True, kw_only=True):
    """A model that lends, and who says what of it."""

    id: str
    name: str = ""
    similarity: float | None = None
    metric: str = ""
    value: float | None = None
    data: str = ""
    framework: str = ""
    owner: str = ""  # who claims that it is so good
    project: str = ""
    licence: str = ""
    signer: str = ""  # id of the key that signed it; "": nobody did
    signed_by: str = ""  # whose key that is; "": none that is trusted
    claim: str = ""  # who has checked that, and what came of starts from it

    @property
    def full_name(self) -> str:
        """Its name and whose it is."""
        return f"{self.owner}/{self.name}" if self.owner else self.name

    @property
    def quality(self) -> str:
        """How good its owner says that it is; "": nothing is said."""
        if self.value is None:
            return ""
        return f"{self.metric} {self.value:.4g}" + (f" on {self.data}" if self.data else "")


class Answer(Struct, frozen=True, kw_only=True):
    """What a query found, and what it did. Reads like a mapping, prints like a report.

    Attributes are typed; as a mapping, `calibration` and `probe` are plain data, as JSON has them.
    """

    parent: str | None = None  # id of the model that lends; None: a cold start
    parent_name: str = ""
    parents: tuple[Parent, ...] = ()  # all that lend, their units side by side; the first is `parent`
    reason: str = ""  # why this parent, or why a cold start
    similarity: float | None = None
    metric: str = ""  # what the parent is good at ...
    value: float | None = None  # ... and how good it is
    data: str = ""  # the data set that the parent was trained on
    framework: str = ""  # that the parent was written in: "torch", "keras" ...
    exact: bool = False  # does the model now compute what the parent computes, or the mean of what all do?
    doubts: tuple[str, ...] = ()  # if not, why not
    actions: dict[str, dict[str, float]] = {}  # copied, widened ...: tensors, layers, parameters, percent
    transferred: float = 0.0  # percent of the parameters that come from the parents
    frozen: int = 0  # tensors of the model that are frozen, and keep their values
    runners_up: tuple[Rival, ...] = ()
    considered: int = 0  # models that passed the filters
    aligned: int = 0  # architectures that were compared layer by layer
    advice: Advice = Advice()  # how to train from here, relative to training from scratch
    calibration: Calibration | None = None  # what was fitted on examples, by which measure, and the cost
    probe: Race | None = None  # how the starts raced, and which won
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = {}  # by stage
    dry_run: bool = False
    start: str = ""  # id of this start in the zoo, which goes with the registration; "": it is not recorded
    restricted: str = ""  # which models could lend at all, in words; "": all

    def __post_init__(self) -> None:
        if self.parent is not None and not self.parents:  # it is the only one, or an older service says so
            only = Parent(
                id=self.parent,
                name=self.parent_name,
                similarity=self.similarity,
                metric=self.metric,
                value=self.value,
                data=self.data,
                framework=self.framework,
            )
            msgspec.structs.force_setattr(self, "parents", (only,))

    @property
    def cold(self) -> bool:
        """Does the training start from its own initial values?"""
        return self.parent is None

    @property
    def parents_named(self) -> str:
        """The names of all parents, in words: A and B."""
        return enumeration([parent.name for parent in self.parents])

    @property
    def claims(self) -> tuple[dict[str, str], ...]:
        """Of each parent: who says what of it, and what is known of that."""
        fields = ("id", "name", "owner", "project", "signed_by", "licence", "quality", "claim")
        return tuple({name: getattr(parent, name) for name in fields} for parent in self.parents)

    @property
    def accuracy(self) -> float | None:
        """The parent's accuracy, if that is what it is measured by."""
        return self.value if self.metric == "accuracy" else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain | {key: self[key] for key in ("calibration", "probe", "cold", "accuracy", "claims")}

    def __getitem__(self, key: str) -> Any:
        if key not in _KEYS:
            raise KeyError(key)
        value = getattr(self, key)
        return value.to_dict() if isinstance(value, Calibration | Race) else value

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)

    def __contains__(self, key: object) -> bool:
        return key in _KEYS

    def keys(self) -> tuple[str, ...]:
        """The names of all fields."""
        return _KEYS

    def values(self) -> tuple[Any, ...]:
        """All fields."""
        return tuple(self[key] for key in _KEYS)

    def items(self) -> tuple[tuple[str, Any], ...]:
        """Names and fields."""
        return tuple((key, self[key]) for key in _KEYS)

    def get(self, key: str, default: Any = None) -> Any:
        """A field, or the default."""
        return self[key] if key in _KEYS else default

    def __rich__(self) -> "RenderableType":
        from modelkeeper.warmstart.report import report

        return report(self)

    def __str__(self) -> str:
        from modelkeeper.display.tables import as_text
        from modelkeeper.warmstart.report import report

        return as_text(report(self)).rstrip()

    def _repr_html_(self) -> str:
        from modelkeeper.display.notebooks import as_html
        from modelkeeper.warmstart.report import report

        return as_html(report(self))


_KEYS = (*Answer.__struct_fields__, "cold", "accuracy", "claims")
Mapping.register(Answer)
