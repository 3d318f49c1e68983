"""What did warm starts save, and how is that known? Three kinds, which are never added up.

measured    by a race: the start was, before its first step, as good as the cold start beside it became. It
            saved at least the steps that the cold one had made by then; a race goes no further.
matched     by a cold run of the same architecture, data, fold, task and metric that left a curve: at the best
            score that both reached, how many steps and seconds earlier (or later) was the warm one there?
            Of several cold runs the best says which score, and the median of those that reached it counts.
estimated   by advice, where neither is known: a training that went as far as its curve says, and was cut to
            the share of the steps that was advised, would have been so much longer from scratch. Nobody knows
            whether the advice was followed.

Steps are as each training counts them, epochs or batches. Of a start of which a kind could say something but
does not know how much, `unknown` is counted, and nothing is guessed.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.curves import Curve
from modelkeeper.warmstart.race.rules import COLD, WINDOW, Race
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.starts import Start, StartFilter, Starts
from modelkeeper.zoo.history.twins import alike, cold_twins, comparable
from modelkeeper.zoo.records import Record, Viewer

WEEK, USER, PROJECT = KINDS = ("week", "user", "project")
MEASURED, MATCHED, ESTIMATED = ("measured", "matched", "estimated")
MOST_STARTS = 20_000  # that are looked at, the newest
DAYS = 90 * 86400.0  # seconds, unless others are asked for


class Saved(Struct, frozen=True):
    """What starts saved, by one kind of evidence."""

    starts: int = 0  # of which it is known
    steps: float = 0.0  # as their trainings count them; below 0: they took longer
    seconds: float = 0.0
    unknown: int = 0  # starts of which there is evidence, but not how much

    def __add__(self, other: "Saved") -> "Saved":
        both = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Saved(*(mine + theirs for mine, theirs in both))


UNKNOWN = Saved(unknown=1)


class SavingsOf(Struct, frozen=True, kw_only=True):
    """What the starts of a week, a user or a project saved."""

    name: str  # 2026-W47, a user, a project; "": of none
    starts: int = 0  # queries that were no dry runs
    cold: int = 0  # of which nothing was lent, or what was lost the race
    measured: Saved = Saved()
    matched: Saved = Saved()
    estimated: Saved = Saved()

    def __add__(self, other: "SavingsOf") -> "SavingsOf":
        """Of both, under this one's name: each kind for itself."""
        return SavingsOf(
            name=self.name,
            starts=self.starts + other.starts,
            cold=self.cold + other.cold,
            measured=self.measured + other.measured,
            matched=self.matched + other.matched,
            estimated=self.estimated + other.estimated,
        )


class Savings(Struct, frozen=True, kw_only=True):
    """What warm starts saved, and what that cost."""

    by: str  # one of KINDS
    since: float
    until: float
    groups: tuple[SavingsOf, ...]
    weeks: tuple[SavingsOf, ...]  # the same by week, whatever `by` is
    total: SavingsOf  # of all groups, each kind of evidence for itself
    complete: bool  # False: there were more starts than are looked at, and the oldest are left out
    bytes: int  # of all weights that the zoo keeps now, as far as they may be seen
    query_seconds: float  # that all these queries took
    race_steps: int  # that races took, of all starts in them
    race_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def measured(race: Race) -> Saved:
    """What a race says: at least so many steps. Of a start that lost to the cold one, that it saved none."""
    if race.winner == COLD:
        return Saved(1)
    runners = {runner.start: runner for runner in race.runners}
    winner, cold = runners.get(race.winner), runners.get(COLD)
    if winner is None or cold is None or not race.steps:
        return UNKNOWN
    if winner.first is None or cold.loss is None or winner.first > cold.loss:
        return UNKNOWN
    # Its loss is a mean over the last batches: there it was in the middle of these.
    steps = cold.steps * (1 - WINDOW / 2)
    return Saved(1, steps, steps * race.seconds / race.steps)


def matched(warm: Curve, cold: Collection[Curve]) -> Saved | None:
    """By how much a training was earlier than cold ones at the best that both reached; None: nobody knows."""
    twins = [curve for curve in cold if comparable(warm, curve)]
    if not twins:
        return None
    furthest = max(twins, key=lambda curve: curve.goodness(curve.best))
    level = min((warm.best, furthest.best), key=warm.goodness).score
    here, theirs = warm.reaches(level), [curve.reaches(level) for curve in twins]
    there = [point for point in theirs if point is not None]  # who never got there says not when
    if here is None or not there:
        return None
    steps, seconds = median(point.step for point in there), median(point.seconds for point in there)
    return Saved(1, float(steps - here.step), float(seconds - here.seconds))


def estimated(start: Start, curve: Curve | None) -> Saved:
    """What a start saved if its training was cut as advised; nothing, if it was advised to train as ever."""
    if start.schedule >= 1 or start.cold:
        return Saved()
    if curve is None or start.schedule <= 0:
        return UNKNOWN
    last, more = curve.points[-1], 1 / start.schedule - 1
    return Saved(1, last.step * more, last.seconds * more)


def evidence(start: Start | None, curve: Curve | None, twins: Collection[Curve]) -> dict[str, Saved]:
    """What one start saved, by kind of evidence; a start that nobody remembers can still be matched."""
    went_cold = start is not None and _went_cold(start)
    race = start.race if start is not None else None
    known = matched(curve, twins) if curve is not None and not went_cold else None
    guessed = Saved() if start is None or race is not None or known is not None else estimated(start, curve)
    return {
        MEASURED: Saved() if race is None else measured(race),
        MATCHED: known or Saved(),
        ESTIMATED: guessed,
    }


def savings(
    catalog: Catalog, by: str = WEEK, wanted: StartFilter | None = None, viewer: Viewer | None = None
) -> Savings:
    """What these starts saved, of those that the viewer may see; by default of the last 90 days.

    Raises:
        InvalidMeta: `by` is none of KINDS.
    """
    if by not in KINDS:
        raise InvalidMeta("by", repr(by[:40]), f"choose one of {', '.join(KINDS)}")
    wanted = wanted or StartFilter()
    until = time.time() if wanted.until is None else wanted.until
    since = until - DAYS if wanted.since is None else wanted.since
    wanted = msgspec.structs.replace(wanted, since=since, until=until)
    found = Starts(catalog.database).listed(wanted, viewer, limit=MOST_STARTS + 1)
    starts = found[:MOST_STARTS]
    trained = catalog.with_ids({start.model for start in starts if start.model}, viewer)
    drawn = catalog.curves(trained)
    warm = [trained[start.model] for start in starts if start.model in drawn and not _went_cold(start)]
    twins = cold_twins(catalog, warm, viewer)
    each = []
    for start in starts:
        record = trained.get(start.model)
        cold = twins.get(alike(record), {}) if record is not None else {}
        known = evidence(start, drawn.get(start.model), cold.values())
        each.append((start, SavingsOf(name="", starts=1, cold=_went_cold(start), **known)))
    races = [start.race for start in starts if start.race is not None]
    return Savings(
        by=by,
        since=since,
        until=until,
        groups=_grouped(each, _names(by, trained)),
        weeks=_grouped(each, _names(WEEK, trained)),
        total=sum((one for _, one in each), SavingsOf(name="")),
        complete=len(found) <= MOST_STARTS,
        bytes=catalog.stats(viewer)["bytes"],
        query_seconds=sum(sum(start.seconds.values()) for start in starts),
        race_steps=sum(race.steps for race in races),
        race_seconds=sum(race.seconds for race in races),
    )


def _grouped(each: Iterable[tuple[Start, SavingsOf]], name: Callable[[Start], str]) -> tuple[SavingsOf, ...]:
    """The sums of groups, by their names."""
    groups: dict[str, SavingsOf] = {}
    for start, one in each:
        of = name(start)
        groups[of] = groups.get(of, SavingsOf(name=of)) + one
    return tuple(groups[of] for of in sorted(groups))


def _went_cold(start: Start) -> bool:
    """Did the training start from its own initial values, also after a race that the cold start won?"""
    return start.cold or (start.race is not None and start.race.winner == COLD)


def _names(by: str, trained: Mapping[str, Record]) -> Callable[[Start], str]:
    """To which group a start belongs."""

    def project(start: Start) -> str:
        record = trained.get(start.model)
        return record.project if record is not None else ""

    kinds: dict[str, Callable[[Start], str]] = {
        WEEK: lambda start: time.strftime("%G-W%V", time.gmtime(start.at)),
        USER: lambda start: start.user,
        PROJECT: project,
    }
    return kinds[by]
