"""Is what is claimed of a model to be believed? What a coordinator in this process is told of that."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.credit import CHECKED, RACED, Credit, Outcome
from modelkeeper.text import enumeration
from modelkeeper.zoo.records import MAX_NAME, Record, Viewer, checked_name
from modelkeeper.zoo.zoo import Zoo

if TYPE_CHECKING:
    from modelkeeper.weights import Array

TOLD = (RACED, CHECKED)  # what users may say; what children came to, the zoo sees by itself


class _Known(Protocol):
    zoo: Zoo

    def show(self, name: str, viewer: Viewer | None = None) -> Record: ...


class LocalClaims:
    """The part of a coordinator in this process that knows what came of its models."""

    def tell(
        self: _Known, name: str, kind: str, gain: float, *, user: str = "", viewer: Viewer | None = None
    ) -> Credit:
        """Say what came of a model: see `Coordinator.tell`."""
        if kind not in TOLD:
            raise InvalidMeta("the kind of an outcome", repr(kind[:40]), f"choose one of {', '.join(TOLD)}")
        if not -1 <= gain <= 1:
            raise InvalidMeta("gain", str(gain), "give a number from -1 to 1")
        record = self.show(name, viewer)
        user = checked_name("user", user[:MAX_NAME])
        if user != record.voice:  # nobody praises himself
            said = Outcome(parent=record.id, user=user, kind=kind, gain=gain, at=time.time())
            self.zoo.outcomes.add(said)
        return self.zoo.outcomes.credits([record])[record.id]

    def credit(self: _Known, record: Record) -> Credit:
        """How far what is claimed of a model is believed."""
        return self.zoo.outcomes.credits([record])[record.id]

    @contextlib.contextmanager
    def whole(self: _Known, record: Record) -> "Iterator[tuple[bytes | None, Mapping[str, Array]]]":
        """A model itself, to be run: see `Coordinator.whole`."""
        yield self.zoo.program(record), self.zoo.weights(record)

    def was_lent(self: _Known, record: Record, user: str) -> bool:
        """Was a model lent to a user, by their id?"""
        return self.zoo.outcomes.was_lent(record.id, user)

    def _damaged_records(self: _Known) -> list[str]:
        """What to say of models whose records cannot be trusted, and which lend nothing for that."""
        damaged = self.zoo.catalog.damaged
        if not damaged:
            return []
        names = enumeration(sorted(damaged)[:3])
        return [f"{len(damaged)} records of the catalog are damaged ({names}): run `modelkeeper verify`"]
