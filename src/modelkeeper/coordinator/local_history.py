"""What happened in the zoo of this process? How trainings started and went, how busy its services were."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from modelkeeper.coordinator.history import HOUR
from modelkeeper.settings import DAY
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.catalog.event_data import about_loan
from modelkeeper.zoo.catalog.starts import Start, StartFilter
from modelkeeper.zoo.records import LENT, Event, Record, Viewer, new_id
from modelkeeper.zoo.zoo import Zoo

if TYPE_CHECKING:
    from modelkeeper.coordinator.candidates import Request
    from modelkeeper.policy.curves import Curve
    from modelkeeper.warmstart.race.rules import Race
    from modelkeeper.zoo.foresight import Foreseen
    from modelkeeper.zoo.history.children import Child
    from modelkeeper.zoo.history.past_loans import PastLoan
    from modelkeeper.zoo.history.samples import Sample
    from modelkeeper.zoo.history.savings import Savings
    from modelkeeper.zoo.history.twins import Curves


class LocalHistory:
    """The part of a coordinator in this process that knows what happened."""

    zoo: Zoo

    def _started(
        self, answer: Answer, request: "Request", benefit: Mapping[str, float] | None = None
    ) -> Answer:
        """Note how a model starts, and who lends; the answer with the id of that, if it could be noted.

        Of a dry run nothing is noted.
        """
        if request.dry_run:
            return answer
        asker = request.asker or Viewer("")
        start = Start(
            id=new_id(),
            at=time.time(),
            user=asker.name,
            user_id=asker.user,
            child=request.graph.fingerprint,
            task=request.query.task,
            data=request.query.data,
            parents=tuple(parent.id for parent in answer.parents),
            similarity=answer.similarity,
            benefit=dict(benefit or {}),
            exact=answer.exact,
            schedule=answer.advice.schedule,
            actions=answer.actions,
            seconds=answer.seconds,
        )
        if self.zoo.started(start):
            answer = msgspec.structs.replace(answer, start=start.id)
        self._lent(answer, start.child, asker)
        return answer

    def _lent(self, answer: Answer, child: str, asker: Viewer) -> None:
        """Count for each parent that it lent its weights to a child, and write it into the log."""
        now = time.time()
        for parent in answer.parents:
            detail = f"{parent.name} lent its weights, similarity {parent.similarity or 0:.3f}"
            data = about_loan(child, parent.similarity, answer.start)
            event = Event(at=now, action=LENT, model=parent.id, user=asker.name, detail=detail, data=data)
            self.zoo.lent(parent.id, event)

    def raced(self, start: str, race: "Race", *, viewer: Viewer | None = None) -> None:
        """Say how a race of a start went: see `History.raced`."""
        self.zoo.starts.raced(start, race, viewer)

    def starts(
        self,
        wanted: "StartFilter | None" = None,
        *,
        limit: int = 50,
        before: int | None = None,
        viewer: Viewer | None = None,
    ) -> "list[Start]":
        """How trainings started, the newest first: see `History.starts`."""
        return self.zoo.starts.listed(wanted or StartFilter(), viewer, limit=limit, before=before)

    def curve(self, record: Record) -> "Curve | None":
        """How the training of a model went; None: nobody said."""
        return self.zoo.catalog.curves([record.id]).get(record.id)

    def curves(self, record: Record, *, viewer: Viewer | None = None) -> "Curves":
        """How the training of a model went, and what it is compared with: see `History.curves`."""
        from modelkeeper.zoo.history.twins import curves_of

        return curves_of(self.zoo.catalog, record, viewer)

    def children(
        self, record: Record, *, limit: int = 50, before: str | None = None, viewer: Viewer | None = None
    ) -> "list[Child]":
        """What started from a model, and what it gained: see `History.children`."""
        from modelkeeper.zoo.history.children import children_of

        return children_of(self.zoo.catalog, record, viewer, limit=limit, before=before)

    def loans(
        self, record: Record, *, limit: int = 50, before: int | None = None, viewer: Viewer | None = None
    ) -> "list[PastLoan]":
        """Who started from a model, and what came of it: see `History.loans`."""
        from modelkeeper.zoo.history.past_loans import loans_of

        with self.zoo.catalog.database.reading() as connection:
            return loans_of(connection, record.id, viewer, limit=limit, before=before)

    def foresee(self, capacity: int, most: int) -> "Foreseen":
        """Which models would go if the zoo had this capacity; nothing is done."""
        from modelkeeper.zoo.foresight import foresee

        return foresee(self.zoo, capacity, most)

    def prune_events(self, before: float) -> int:
        """Delete what the log says of the time before. How many events?"""
        return self.zoo.catalog.prune_events(before)

    def samples(
        self, since: float | None = None, until: float | None = None, step: float = HOUR
    ) -> "list[Sample]":
        """How busy the services of the zoo were, the oldest first: see `History.samples`."""
        from modelkeeper.zoo.history.samples import read

        until = time.time() if until is None else until
        with self.zoo.catalog.database.reading() as connection:
            return read(connection, until - DAY if since is None else since, until, step)

    def savings(
        self, by: str = "week", wanted: "StartFilter | None" = None, *, viewer: Viewer | None = None
    ) -> "Savings":
        """What warm starts saved, and what that cost: see `History.savings`."""
        from modelkeeper.zoo.history.savings import savings

        return savings(self.zoo.catalog, by, wanted, viewer)

    def add_samples(self, minute: int, values: Mapping[str, float]) -> None:
        """Add to what the services of the zoo have counted in a minute."""
        from modelkeeper.zoo.history.samples import add

        with self.zoo.catalog.database.writing() as connection:
            add(connection, minute, values)

    def prune_samples(self, before: float) -> int:
        """Forget what was counted before a time. How many numbers?"""
        from modelkeeper.zoo.history.samples import forget

        with self.zoo.catalog.database.writing() as connection:
            return forget(connection, before)
