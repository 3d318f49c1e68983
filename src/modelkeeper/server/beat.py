"""What does a service do again and again, so that it and its replicas act as one?

    with beat.going_on(): ...   every BEAT seconds, and at once when the database tells of a change
    beat.confirmed(known, at)   up to when does hold what was known of accounts?
    beat.changes                models that came or went, as of the last beat
    beat.leads                  is it for this one to tidy up?

Each beat asks the catalog for its counts, settles what users were let through (see `shared_rates`) and sees
to the lease of the leader. No request waits for it, and a catalog that is down stops none that needs nothing
of it: rates then hold for each replica by itself, and what was let through is settled later.
"""

import contextlib
import math
import threading
import time
from collections.abc import Iterator

from modelkeeper.errors import ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.server.limits import Rates
from modelkeeper.zoo.replicas.leader import RENEWED
from modelkeeper.zoo.replicas.replica import Replica

BEAT = 0.5  # seconds
log = logger("modelkeeper.server")


class Beat:
    """The heart of one service."""

    def __init__(self, replica: Replica, rates: Rates) -> None:
        self._replica, self._rates = replica, rates
        self._accounts: tuple[int, float] | None = (
            None  # how many changes there were, and when that was asked
        )
        self._woken, self._lead_at, self._said = threading.Event(), 0.0, ""
        self.changes = 0
        self.changed = threading.Event()  # set when models have come or gone

    @property
    def leads(self) -> bool:
        """Does this service lead?"""
        return self._replica.leader.leads

    @property
    def accounts(self) -> int | None:
        """How many changes of accounts there have been, as of the last beat; None: nobody has asked yet."""
        return None if self._accounts is None else self._accounts[0]

    def confirmed(self, accounts: int | None, since: float) -> float:
        """Up to when does what was known of accounts hold, that was read at `since` after so many changes?

        If there have been others since, it holds no more.
        """
        if self._accounts is None:
            return since
        return max(since, self._accounts[1]) if self._accounts[0] == accounts else -math.inf

    def wake(self) -> None:
        """Beat now."""
        self._woken.set()

    def once(self) -> None:
        """One beat. What fails is tried again with the next."""
        try:
            self._count()
            self._settle()
            if time.monotonic() >= self._lead_at:
                self._lead_at, led = time.monotonic() + RENEWED, self.leads
                if self._replica.leader.take() and not led:
                    self.changed.set()  # there may be something to share
            self._said = ""
        except ModelKeeperError as problem:
            if not self._said:
                self._said = str(problem)
                log.warning("the catalog does not answer, and is asked again: %s", problem)
        except Exception:
            log.exception("a beat failed")

    def _count(self) -> None:
        asked = time.monotonic()
        changes, accounts = self._replica.counts()
        self._accounts = accounts, asked
        if changes != self.changes:
            self.changes = changes
            self.changed.set()

    def _settle(self) -> None:
        spent = self._rates.spent()
        if spent:
            try:
                self._rates.settle(self._replica.settle(spent))
            except ModelKeeperError:
                self._rates.unsettled(spent)
                raise

    def _resign(self) -> None:
        with contextlib.suppress(ModelKeeperError):  # then the lease runs out
            self._replica.leader.resign()

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Beat in a thread while the block runs."""
        stopped = threading.Event()
        thread = threading.Thread(target=self._go_on, args=(stopped,), name="modelkeeper-beat", daemon=True)
        with self._replica.listening(self.wake):
            thread.start()
            try:
                yield
            finally:
                stopped.set()
                self.wake()
                thread.join()

    def _go_on(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            self._woken.clear()
            self.once()
            if not stopped.is_set():
                self._woken.wait(BEAT)
        self._resign()
