"""How much may be said of a model, and in which letters? Everybody's listings and queries carry it.

    kept(metrics, chosen)      what of all that was measured fits into a record, the chosen one first
    check(registration)        the last look before a record is made of it

Names are single printable lines, and all that is said of one model has an end: a thousand records make a
reply of some megabytes, whoever registered them.
"""

import math
from collections.abc import Mapping

import msgspec

from modelkeeper.errors import InvalidMeta
from modelkeeper.zoo.licences import checked_licence
from modelkeeper.zoo.records import (
    MAX_PARENTS,
    MAX_TAGS,
    VISIBILITIES,
    Registration,
    checked_name,
    is_id,
)

MAX_METRICS = 200
MAX_METRIC_NAME = 100  # characters
MAX_METRIC_BYTES = 8 * 2**10  # of all metrics as JSON
MAX_SAID = 16 * 2**10  # bytes of all that is said of a model, as JSON
MAX_FRAMEWORK = 40  # characters


def kept(metrics: Mapping[str, float], chosen: str = "") -> dict[str, float]:
    """As many metrics as a record holds: those that end in the chosen one's name first, then in order."""
    sound = {name: value for name, value in metrics.items() if _is_name(name)}
    first = [name for name in sound if chosen and name.endswith(chosen)]
    found, size = set[str](), 2
    for name in (*first, *(name for name in sound if name not in first)):
        size += len(msgspec.json.encode({name: sound[name]}))
        if size > MAX_METRIC_BYTES or len(found) == MAX_METRICS:
            break
        found.add(name)
    return {name: value for name, value in sound.items() if name in found}


def check(registration: Registration, owner: str = "", framework: str = "") -> None:
    """Look at all that becomes part of a record.

    Raises:
        InvalidMeta: It is too much, or cannot be so.
    """
    said = registration
    checked_name("name", said.name, empty=False)
    checked_name("owner", owner)
    checked_name("framework", framework, longest=MAX_FRAMEWORK)
    for what in ("data", "fold", "task", "project", "licence"):
        checked_name(what, getattr(said, what))
    for tag in said.tags:
        checked_name("tags", tag, empty=False)
    if len(said.tags) > MAX_TAGS:
        raise InvalidMeta("tags", f"{len(said.tags)} names", f"at most {MAX_TAGS}")
    if said.visibility and said.visibility not in VISIBILITIES:
        raise InvalidMeta(
            "visibility", repr(said.visibility)[:80], f"choose one of {', '.join(VISIBILITIES)}"
        )
    for parent in said.parents:
        checked_name("parent", parent, empty=False)
    if len(said.parents) > MAX_PARENTS:
        raise InvalidMeta("parent", f"{len(said.parents)} names", f"at most {MAX_PARENTS}")
    if said.similarity is not None and not 0 <= said.similarity <= 1:
        raise InvalidMeta("similarity", repr(said.similarity)[:80], "give a number from 0 to 1")
    if said.run and not is_id(said.run):
        raise InvalidMeta("run", repr(said.run)[:80], "give 16 hexadecimal digits, or none")
    if said.start and not is_id(said.start):
        raise InvalidMeta("start", repr(said.start)[:80], "give the id that the answer has, or none")
    checked_licence(said.licence)
    _check_metrics(said)
    if said.curve is not None:
        check_metric(said.curve.metric)
        said.curve.check()
    size = len(msgspec.json.encode(msgspec.structs.replace(said, curve=None)))
    if size > MAX_SAID:
        advice = f"at most {MAX_SAID:,}: say less, with fewer and shorter tags"
        raise InvalidMeta("what is said of the model", f"{size:,} bytes long", advice)


def _check_metrics(said: Registration) -> None:
    names = [*said.metrics, *([said.metric.name] if said.metric else [])]
    for name in names:
        check_metric(name)
    values = [*said.metrics.values(), *([said.metric.value] if said.metric else [])]
    if not all(math.isfinite(value) for value in values):
        raise InvalidMeta("metrics", "infinite or NaN", "leave such numbers out")
    if kept(said.metrics) != said.metrics:
        advice = f"at most {MAX_METRICS} with {MAX_METRIC_BYTES:,} bytes as JSON"
        raise InvalidMeta("metrics", f"{len(said.metrics)} numbers", advice)


def check_metric(name: str) -> None:
    """Look at the name of a metric.

    Raises:
        InvalidMeta: It is no single printable line, or too long.
    """
    what = "the name of a metric"
    if checked_name(what, name, empty=False, longest=MAX_METRIC_NAME) != name:
        raise InvalidMeta(what, repr(name[:80]), "it begins or ends with blanks")


def _is_name(text: str) -> bool:
    try:
        check_metric(text)
    except InvalidMeta:
        return False
    return True
