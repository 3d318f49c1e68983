"""What happened in a zoo behind HTTP? How trainings started and went, how busy its services were."""

from typing import Any

import msgspec

from modelkeeper.coordinator.history import HOUR
from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.wire import MAX_LISTED
from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.curves import Curve
from modelkeeper.warmstart.race.rules import Race
from modelkeeper.zoo.catalog.starts import Start, StartFilter
from modelkeeper.zoo.foresight import Foreseen
from modelkeeper.zoo.history.children import Child
from modelkeeper.zoo.history.past_loans import PastLoan
from modelkeeper.zoo.history.samples import Sample
from modelkeeper.zoo.history.savings import Savings
from modelkeeper.zoo.history.twins import Curves
from modelkeeper.zoo.records import Record, is_id


class RemoteHistory:
    """The part of a `RemoteCoordinator` that knows what happened."""

    _calls: Calls

    def starts(
        self, wanted: StartFilter | None = None, *, limit: int = 50, before: int | None = None
    ) -> list[Start]:
        """How trainings started, the newest first: see `History.starts`."""
        chosen = msgspec.structs.asdict(wanted or StartFilter())
        params = _given(**chosen, before=before, limit=min(limit, MAX_LISTED))
        return self._calls.ask("GET", "/starts", list[Start], params=params)

    def raced(self, start: str, race: Race) -> None:
        """Say how a race of a start went."""
        if not is_id(start):  # it becomes part of a path
            raise InvalidMeta("start", repr(start[:80]), "give the id that the answer has")
        body = msgspec.json.encode(race)
        self._calls.ask("POST", f"/starts/{start}/race", type(None), body=body)

    def curve(self, record: Record) -> Curve | None:
        """How the training of a model went; None: nobody said."""
        return self._calls.ask("GET", f"/models/{record.id}/curve", Curve | None)  # type: ignore[arg-type]

    def curves(self, record: Record) -> Curves:
        """How the training of a model went, and what it is compared with: see `History.curves`."""
        return self._calls.ask("GET", f"/models/{record.id}/curves", Curves)

    def children(self, record: Record, *, limit: int = 50, before: str | None = None) -> list[Child]:
        """What started from a model, and what it gained: see `History.children`."""
        params = _given(before=before, limit=min(limit, MAX_LISTED))
        return self._calls.ask("GET", f"/models/{record.id}/children", list[Child], params=params)

    def loans(self, record: Record, *, limit: int = 50, before: int | None = None) -> list[PastLoan]:
        """Who started from a model, and what came of it: see `History.loans`."""
        params = _given(before=before, limit=min(limit, MAX_LISTED))
        return self._calls.ask("GET", f"/models/{record.id}/loans", list[PastLoan], params=params)

    def samples(
        self, since: float | None = None, until: float | None = None, step: float = HOUR
    ) -> list[Sample]:
        """How busy the services of the zoo were, the oldest first: see `History.samples`."""
        params = _given(since=since, until=until, step=step)
        return self._calls.ask("GET", "/samples", list[Sample], params=params)

    def foresee(self, capacity: int, most: int) -> Foreseen:
        """Which models would go if the zoo had this capacity: see `History.foresee`."""
        params = {"capacity": capacity, "limit": max(1, min(most, MAX_LISTED))}
        return self._calls.ask("GET", "/foresee", Foreseen, params=params)

    def savings(self, by: str = "week", wanted: StartFilter | None = None) -> Savings:
        """What warm starts saved, and what that cost: see `History.savings`."""
        params = _given(by=by, **msgspec.structs.asdict(wanted or StartFilter()))
        return self._calls.ask("GET", "/savings", Savings, params=params)


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
