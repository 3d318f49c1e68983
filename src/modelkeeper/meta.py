"""What may a training script say of its model? `meta`, checked and understood.

    read_query({"data": "Flowers102", "task": "classification", "tags": None})        -> Query
    read_registration({"data": "Flowers102", "task": ..., "accuracy": 0.93}, name)    -> Registration

A key that nobody knows is an error with the key that was probably meant: a typo must not silently turn into
a worse parent.
"""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import InvalidMeta, NotFinite
from modelkeeper.faults import warn
from modelkeeper.plugins import POLICIES
from modelkeeper.policy.quality import Metric, number, primary
from modelkeeper.zoo.bounds import MAX_METRICS, check, check_metric, kept
from modelkeeper.zoo.licences import checked_licence
from modelkeeper.zoo.look_alikes import misleading
from modelkeeper.zoo.records import (
    MAX_PARENTS,
    MAX_TAGS,
    VISIBILITIES,
    Record,
    Registration,
    checked_name,
    is_id,
)
from modelkeeper.zoo.restriction import Restriction

EXAMPLE = '{"data": "Flowers102", "task": "classification", "tags": None}'
MOST_PARENTS = 2  # that lend to one model, unless `most_parents` says otherwise
_BOTH = ("data", "fold", "task", "tags")
_WHOSE = ("owners", "projects", "signed", "licences")  # as `zoo.restriction` has them
ONLY_QUERY = ("parents", "exclude", "most_parents", "minimum_similarity", "budget", "policy", *_WHOSE)
_QUERY = (*_BOTH, *ONLY_QUERY)
REGISTRATION_KEYS = (
    *_BOTH,
    "accuracy",
    "metric",
    "metrics",
    "name",
    "project",
    "visibility",
    "parent",
    "licence",
)


class Query(Struct, frozen=True, kw_only=True):
    """Which parents a new model would take."""

    data: str = ""
    fold: str = ""  # of the data that it will be validated on: see `read_query`
    task: str = ""
    tags: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()  # names (`resnet20`, `ada/resnet20`) or ids to prefer
    exclude: tuple[str, ...] = ()  # names or ids that are not taken; a bare name is everybody's
    owners: tuple[str, ...] = ()  # users whose models alone may lend; () all
    projects: tuple[str, ...] = ()  # likewise
    signed: bool = False  # may only models with a trusted signature lend?
    licences: tuple[str, ...] = ()  # SPDX expressions, of which a parent has one; () all
    most_parents: int = 1  # so many may lend to it, side by side; what an older client means, too
    minimum_similarity: float | None = None  # None: as the zoo is set
    budget: int | None = None  # architectures to compare it with at most; None: as the zoo is set
    policy: str | None = None  # a name; None: as the zoo is set
    frozen: tuple[str, ...] = ()  # tensors of the model that keep their values; the model says so, not `meta`


def read_query(meta: Mapping[str, Any] | None) -> Query:
    """A query from what the user wrote.

    In a cross-validation, a model that was trained on the other folds has seen what this one is validated
    on: `fold` keeps such parents away, models of the same data and of no fold, and all their descendants.

    Raises:
        InvalidMeta: A key is unknown, or a value cannot be so; a policy must be installed here, too, if the
            coordinator is elsewhere.
    """
    given = _known(meta, _QUERY)
    minimum, policy = given.get("minimum_similarity"), given.get("policy")
    most = MOST_PARENTS if given.get("most_parents") is None else given["most_parents"]
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_PARENTS:
        raise InvalidMeta("most_parents", repr(most)[:80], f"give a whole number from 1 to {MAX_PARENTS}")
    budget = given.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise InvalidMeta("budget", repr(budget)[:80], "give a whole number above 0")
    if minimum is not None:
        if isinstance(minimum, bool) or not isinstance(minimum, int | float) or not 0 <= minimum <= 1:
            raise InvalidMeta("minimum_similarity", repr(minimum), "give a number from 0 to 1")
        minimum = float(minimum)
    if not isinstance(given.get("signed") or False, bool):
        raise InvalidMeta("signed", repr(given["signed"])[:80], "give True or False")
    if policy is not None and policy not in POLICIES:
        raise InvalidMeta("policy", repr(policy), f"choose one of {', '.join(POLICIES.names())}")
    return Query(
        data=_text(given, "data"),
        fold=_fold(given),
        task=_text(given, "task"),
        tags=_texts(given, "tags"),
        parents=_texts(given, "parents"),
        exclude=_texts(given, "exclude"),
        owners=_texts(given, "owners"),
        projects=_texts(given, "projects"),
        signed=bool(given.get("signed")),
        licences=_texts(given, "licences"),
        most_parents=most,
        minimum_similarity=minimum,
        budget=budget,
        policy=policy,
    )


def narrowed(query: Query, allowed: Restriction) -> Query:
    """The same query, for a zoo of which whoever asks allows only some models to lend.

    Raises:
        InvalidMeta: The query asks for what is not allowed.
    """
    both: dict[str, tuple[str, ...]] = {}
    for name in ("owners", "projects", "licences"):
        asked, most = getattr(query, name), getattr(allowed, name)
        both[name] = tuple(each for each in asked if not most or each in most) if asked else most
        if asked and not both[name]:
            raise InvalidMeta(name, repr(asked)[:80], f"the settings allow only {', '.join(most)}")
    return msgspec.structs.replace(query, signed=query.signed or allowed.signed, **both)


def read_training(meta: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is asked before a training, and what is registered after it, from what the user wrote of both.

    Raises:
        InvalidMeta: A key is unknown, or a value cannot be so: said before the training, not after it.
    """
    given = dict(_known(meta, (*REGISTRATION_KEYS, *ONLY_QUERY)))
    asked = {key: given[key] for key in _BOTH if key in given}
    asked |= {key: given.pop(key) for key in ONLY_QUERY if key in given}
    read_query(asked)
    for key in ("accuracy", "metric"):
        if given.get(key) is not None:
            advice = "the training measures it: report it, and name it by `monitor` if there are several"
            raise InvalidMeta(key, repr(given[key])[:80], advice)
    read_registration(given | {"accuracy": 0.5}, "check")
    return asked, given


def read_registration(
    meta: Mapping[str, Any] | None, name: str, *, measured: bool = True, tell: Callable[[str], None] = warn
) -> Registration:
    """A registration from what the user wrote. Of metrics it holds as many as a record has room for.

    Args:
        meta: What the user wrote.
        name: What the model is called if `meta` does not say it.
        measured: Must it say how good the model is?
        tell: Is told that some metrics are left out.

    Raises:
        InvalidMeta: A key is unknown, or a value cannot be so.
        InvalidMetric: It is not said how good the model is, or the number cannot be so.
    """
    given = _known(meta, REGISTRATION_KEYS)
    metrics = given.get("metrics") or {}
    if not isinstance(metrics, Mapping):
        raise InvalidMeta("metrics", repr(metrics)[:80], 'give a dict, e.g. {"val_accuracy": 0.93}')
    metrics = dict(metrics)
    for key in ("accuracy", "metric"):
        if given.get(key) is not None:
            metrics[key] = given[key]
    chosen = primary(metrics) if measured or metrics else None
    numbers = _numbers(metrics)
    if chosen:
        check_metric(chosen.name)
    if chosen and "metric" in metrics:
        numbers[chosen.name] = chosen.value
    fitting = kept(numbers, chosen.name if chosen else "")
    if len(fitting) < len(numbers):
        left_out = next(name for name in numbers if name not in fitting)
        tell(
            f"Of {len(numbers):,} metrics {len(fitting):,} are kept: a record has room for {MAX_METRICS} "
            f"with names of one line. Left out is, among others, {left_out[:80]!r}"
        )
    parents = _parents(given)
    visibility = given.get("visibility") or ""
    if visibility and visibility not in VISIBILITIES:
        raise InvalidMeta("visibility", repr(visibility), f"choose one of {', '.join(VISIBILITIES)}")
    registration = Registration(
        name=_model_name(given.get("name") or name),
        metric=chosen,
        metrics=fitting,
        data=_text(given, "data"),
        fold=_fold(given),
        task=_text(given, "task"),
        tags=_texts(given, "tags"),
        project=_text(given, "project"),
        visibility=visibility,
        licence=checked_licence(given.get("licence") or ""),
        parent=parents[0] if parents else "",
        more_parents=parents[1:],
    )
    check(registration)
    return registration


def checked(registration: Registration) -> Registration:
    """The same registration, if it holds what `read_registration` would let through: it came from outside."""
    more = registration.more_parents
    meta = {
        "name": registration.name,
        "metrics": registration.metrics,
        "metric": registration.metric,
        "data": registration.data,
        "fold": registration.fold,
        "task": registration.task,
        "tags": registration.tags,
        "project": registration.project,
        "visibility": registration.visibility,
        "licence": registration.licence,
        "parent": (registration.parent, *more) if more else registration.parent,
    }
    again = read_registration(meta, registration.name, measured=False, tell=lambda left_out: None)
    again = msgspec.structs.replace(
        again,
        similarity=registration.similarity,
        run=registration.run,
        finished=registration.finished,
        origin=checked_name("origin", registration.origin),
        curve=registration.curve,
        start=registration.start,
    )
    check(again)
    return again


def retold(record: Record, **here: Any) -> Registration:
    """What is said of a model that another zoo had, with what this one says of it instead.

    Raises:
        InvalidMeta: It cannot be so: records come from outside.
    """
    metric, near = None, record.similarity
    if record.value is not None:
        metric = Metric(record.metric, record.value, record.lower_is_better)
    said = Registration(
        name=record.name,
        metric=metric,
        metrics=record.metrics,
        data=record.data,
        fold=record.fold,
        task=record.task,
        tags=record.tags,
        parent=record.parent,
        more_parents=record.more_parents,
        similarity=near if near is not None and 0 <= near <= 1 else None,
        finished=record.finished,
        licence=record.licence,
    )
    return checked(msgspec.structs.replace(said, **here))


def _known(meta: Mapping[str, Any] | None, known: tuple[str, ...]) -> Mapping[str, Any]:
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise InvalidMeta("it", repr(meta)[:80], f"give a dict, e.g. {EXAMPLE}")
    for key in meta:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidMeta("a key", repr(key)[:80], f"{meant}Known are {', '.join(known)}")
    return meta


def _model_name(said: object) -> str:
    """A name that shows what it says, and cannot be taken for an id."""
    name = checked_name("name", said, empty=False)
    reason = "it would be taken for the id of a model" if is_id(name) else misleading(name)
    if reason:
        raise InvalidMeta("name", ascii(name)[:80], f"{reason}; choose another")
    return name


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return "" if value is None else checked_name(key, value)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """All that was measured, without what came out as no finite number."""
    numbers = {}
    for key, value in metrics.items():
        if key != "metric":
            with contextlib.suppress(NotFinite):
                numbers[key] = number(key, value)
    return numbers


def _fold(given: Mapping[str, Any]) -> str:
    """The fold of the data set; people number them."""
    fold = given.get("fold")
    if fold is None or fold == "":
        return ""
    if not given.get("data"):
        raise InvalidMeta(
            "fold", repr(fold)[:80], 'say of which data set, e.g. {"data": "digits", "fold": 2}'
        )
    return checked_name("fold", str(fold) if isinstance(fold, int) else fold, empty=False)


def _parents(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The names or ids of what a model started from: one, or several in order."""
    value = given.get("parent")
    if value is None or isinstance(value, str):
        name = _text(given, "parent")
        return (name,) if name else ()
    parents = _texts(given, "parent")
    if len(parents) > MAX_PARENTS:
        raise InvalidMeta("parent", f"{len(parents)} names", f"at most {MAX_PARENTS}")
    return parents


def _texts(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = given.get(key)
    if value is None:
        return ()
    listed: Iterable[Any] = [value] if isinstance(value, str) else value
    if not isinstance(listed, Iterable) or isinstance(listed, Mapping):
        raise InvalidMeta(key, repr(value)[:80], "give a list of names")
    names = tuple(dict.fromkeys(checked_name(key, name, empty=False) for name in listed))
    if len(names) > MAX_TAGS:
        raise InvalidMeta(key, f"{len(names)} names", f"at most {MAX_TAGS}")
    return names
