"""What did the keeper do for a model? The answer to a query, for programs and for people.

warmed, meta = client.query_for_model(model, ...)
meta["parent"], meta["similarity"], meta.exact       fields, as a mapping or as attributes
meta["advice"]                                       how to train from here: see `advice`
print(meta)                                          a readable report
"""

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from modelkeeper.warmstart.advice import Advice

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_SHOWN = 5  # runners-up in a printed report


class Rival(Struct, frozen=True, kw_only=True):
    """A model that was considered and not taken."""

    id: str
    name: str
    similarity: float
    metric: str = ""
    value: float | None = None
    why: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """What a query found, and what it did. Reads like a mapping, prints like a report."""

    parent: str | None = None  # id of the model that lends; None: a cold start
    parent_name: str = ""
    reason: str = ""  # why this parent, or why a cold start
    similarity: float | None = None
    metric: str = ""  # what the parent is good at ...
    value: float | None = None  # ... and how good it is
    data: str = ""  # the data set that the parent was trained on
    exact: bool = False  # does the model now compute what the parent computes?
    doubts: tuple[str, ...] = ()  # if not, why not
    actions: dict[str, dict[str, float]] = {}  # copied, widened ...: tensors, layers, parameters, percent
    transferred: float = 0.0  # percent of the parameters that come from the parent
    runners_up: tuple[Rival, ...] = ()
    considered: int = 0  # models that passed the filters
    aligned: int = 0  # architectures that were compared layer by layer
    advice: Advice = Advice()  # how to train from here, relative to training from scratch
    calibration: dict[str, Any] | None = None  # what was fitted on examples, by which measure, and the cost
    probe: dict[str, Any] | None = None  # how the starts raced, and which won
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = {}  # by stage
    dry_run: bool = False

    @property
    def cold(self) -> bool:
        """Does the training start from its own initial values?"""
        return self.parent is None

    @property
    def accuracy(self) -> float | None:
        """The parent's accuracy, if that is what it is measured by."""
        return self.value if self.metric == "accuracy" else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found | {"cold": self.cold, "accuracy": self.accuracy}

    def __getitem__(self, key: str) -> Any:
        if key in _KEYS:
            return getattr(self, key)
        raise KeyError(key)

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
        return report(self)

    def __str__(self) -> str:
        from modelkeeper.display.tables import as_text

        return as_text(report(self)).rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


_KEYS = (*Answer.__struct_fields__, "cold", "accuracy")
Mapping.register(Answer)


def report(answer: Answer, most: int = MOST_SHOWN) -> "RenderableType":
    """An answer as people read it, with so many runners-up."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from modelkeeper.display.tables import plain

    lines: list[RenderableType] = []
    if answer.cold:
        lines.append(plain(f"Cold start: {answer.reason}."))
    else:
        measured = f", {answer.metric} {answer.value:.4g}" if answer.value is not None else ""
        on = f" on {answer.data}" if answer.data else ""
        would = "would start" if answer.dry_run else "starts"
        lines.append(
            plain(
                f"The model {would} warm from {answer.parent_name} ({answer.parent}): "
                f"similarity {answer.similarity:.3f}{measured}{on}."
            )
        )
        lines.append(plain(f"Why: {answer.reason}."))
        table = Table(header_style="bold")
        table.add_column("action")
        for heading in ("layers", "tensors", "parameters", "percent"):
            table.add_column(heading, justify="right")
        for action, row in answer.actions.items():
            table.add_row(
                action, *(f"{row[key]:,}" for key in ("layers", "tensors", "parameters", "percent"))
            )
        lines.append(table)
        lines.append(
            Text("Exact: before any training it computes what the parent computes.")
            if answer.exact
            else Text("Approximate, since:")
        )
        lines += [plain(f"  {doubt}") for doubt in answer.doubts]
        lines.append(plain(f"Advice: {answer.advice}."))
    if answer.calibration:
        found = answer.calibration
        verdict = "kept" if found["kept"] else "not kept: the model has the weights of the plain transfer"
        cost = f"on {found['examples']:,} examples in {found['seconds']:.1f} s"
        change = f"{found['plain']:.4g} before, {found['calibrated']:.4g} after"
        lines.append(plain(f"Calibrated {cost}: {found['fitted']} layers fitted."))
        lines.append(plain(f"{found['measure'].capitalize()}: {change}; {verdict}."))
    if answer.probe:
        lines.append(_race(answer.probe))
    if answer.runners_up:
        table = Table(header_style="bold", title="not taken", title_justify="left")
        for heading in ("model", "similarity", "quality", "why"):
            table.add_column(heading, overflow="fold")
        for rival in answer.runners_up[:most]:
            quality = f"{rival.metric} {rival.value:.4g}" if rival.value is not None else ""
            table.add_row(
                *map(plain, (f"{rival.name} ({rival.id})", f"{rival.similarity:.3f}", quality, rival.why))
            )
        lines.append(table)
        if len(answer.runners_up) > most:
            lines.append(Text(f"and {len(answer.runners_up) - most} more"))
    lines += [plain(f"Note: {warning}") for warning in answer.warnings]
    if answer.seconds:
        spent = ", ".join(f"{stage} {1000 * seconds:.0f} ms" for stage, seconds in answer.seconds.items())
        lines.append(plain(f"Considered {answer.considered:,} models, aligned {answer.aligned:,}; {spent}."))
    return Group(*lines)


def _race(probe: dict[str, Any]) -> "RenderableType":
    from modelkeeper.display.tables import race_table
    from modelkeeper.frontends.races import from_dict

    return race_table(from_dict(probe))
