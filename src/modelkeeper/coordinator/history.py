"""What can a coordinator be asked of what happened, and would? How trainings started and went, what goes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from modelkeeper.policy.curves import Curve
    from modelkeeper.warmstart.race.rules import Race
    from modelkeeper.zoo.catalog.starts import Start, StartFilter
    from modelkeeper.zoo.foresight import Foreseen
    from modelkeeper.zoo.history.children import Child
    from modelkeeper.zoo.history.past_loans import PastLoan
    from modelkeeper.zoo.history.samples import Sample
    from modelkeeper.zoo.history.savings import Savings
    from modelkeeper.zoo.history.twins import Curves
    from modelkeeper.zoo.records import Record, Viewer

HOUR = 3600.0  # seconds


class History(Protocol):
    """The part of a coordinator that knows what happened."""

    def starts(
        self, wanted: "StartFilter | None" = None, *, limit: int = 50, before: int | None = None
    ) -> "list[Start]":
        """How trainings started, the newest first: one for each query that was no dry run, cold ones too.

        Args:
            wanted: Which of them.
            limit: At most so many.
            before: Only those before the one of this number, to go on where a list ended.
        """

    def raced(self, start: str, race: "Race") -> None:
        """Say how a race of a start went, whose id the answer has.

        Raises:
            InvalidMeta: There is no such start of whoever says so, or it cannot be what a race came to.
        """

    def curve(self, record: "Record") -> "Curve | None":
        """How the training of a model went; None: nobody said."""

    def curves(self, record: "Record") -> "Curves":
        """How the training of a model went, beside a cold run of the same thing, or else its parent's."""

    def children(self, record: "Record", *, limit: int = 50, before: str | None = None) -> "list[Child]":
        """Which models started from one, the newest first, and what each gained.

        Args:
            record: The parent.
            limit: At most so many.
            before: Only those before the child of this id, to go on where a list ended.
        """

    def loans(self, record: "Record", *, limit: int = 50, before: int | None = None) -> "list[PastLoan]":
        """Who started from a model, the newest first, and what came of it, as far as the log goes back.

        Args:
            record: The parent.
            limit: At most so many.
            before: Only those before the one of this number, to go on where a list ended.
        """

    def samples(
        self, since: float | None = None, until: float | None = None, step: float = HOUR
    ) -> "list[Sample]":
        """How busy the services of the zoo were, the oldest first; over HTTP for administrators.

        Args:
            since: From when on, in seconds since 1970. Default: a day ago.
            until: Up to when. Default: now.
            step: Seconds that are summed up, a multiple of 60.

        Raises:
            InvalidMeta: These are more steps than one reply has, or `step` is no number of minutes.
        """

    def foresee(self, capacity: int, most: int) -> "Foreseen":
        """Which models would go if the zoo had this capacity; at most so many by name. Nothing is done.

        Raises:
            InvalidSetting: No capacity can be so.
        """

    def savings(self, by: str = "week", wanted: "StartFilter | None" = None) -> "Savings":
        """What warm starts saved, in three kinds that are never added up, and what that cost.

        See `zoo.history.savings`.

        Args:
            by: "week", "user" or "project".
            wanted: Of which starts. Default: those of the last 90 days.

        Raises:
            InvalidMeta: `by` is none of these.
        """


class ServedHistory(History, Protocol):
    """What a service needs besides; `viewer`: whose eyes see."""

    def starts(
        self,
        wanted: "StartFilter | None" = None,
        *,
        limit: int = 50,
        before: int | None = None,
        viewer: "Viewer | None" = None,
    ) -> "list[Start]":
        """How trainings started, as far as it may be seen."""

    def raced(self, start: str, race: "Race", *, viewer: "Viewer | None" = None) -> None:
        """Say how a race of a start of the viewer's went."""

    def curves(self, record: "Record", *, viewer: "Viewer | None" = None) -> "Curves":
        """How a training went, beside one that may be seen."""

    def children(
        self,
        record: "Record",
        *,
        limit: int = 50,
        before: str | None = None,
        viewer: "Viewer | None" = None,
    ) -> "list[Child]":
        """Which models started from one, of those that may be seen."""

    def loans(
        self,
        record: "Record",
        *,
        limit: int = 50,
        before: int | None = None,
        viewer: "Viewer | None" = None,
    ) -> "list[PastLoan]":
        """Who started from a model, with what of that may be seen."""

    def savings(
        self, by: str = "week", wanted: "StartFilter | None" = None, *, viewer: "Viewer | None" = None
    ) -> "Savings":
        """What the starts saved that may be seen."""

    def add_samples(self, minute: int, values: "Mapping[str, float]") -> None:
        """Add to what the services of the zoo have counted in a minute."""

    def prune_samples(self, before: float) -> int:
        """Forget what was counted before a time. How many numbers?"""
