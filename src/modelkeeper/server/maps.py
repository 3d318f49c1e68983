"""Who draws the map of the zoo, and when? A thread, if somebody looks, and never while they wait.

    with service.maps.going_on(): ...        from here on whoever looks is shown a map, or told to come again
    service.maps.look(viewer)                what a viewer may see of the newest one that there is
    service.maps.within(mark, ...)           which architectures lie in a part of one

A map that nobody looks at costs nothing. The first look wakes the thread; later ones do so when the catalog
has changed, and then only what is new is aligned. It aligns on one core, for LONGEST seconds at most, and
rests between two maps many times as long as the last one took.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelkeeper.errors import ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.zoo.chart import DRAWING, ELSEWHERE, FAILED, LATE, UNIT, Chart, Survey
from modelkeeper.zoo.records import Viewer

if TYPE_CHECKING:
    from modelkeeper.coordinator.base import ServedCoordinator

LONGEST = 300.0  # seconds; a map that takes longer has fewer landmarks
REST, RESTS = 3.0, 20  # seconds between two maps at least, and how many times as long as one took
KEPT = 4  # maps in which a part can be named: somebody may have one open that was drawn before
PATIENCE = 5.0  # seconds that the end waits for it
log = logger("modelkeeper.server")


class Maps:
    """The maps of one zoo. Safe to use from several threads."""

    def __init__(self, coordinator: "ServedCoordinator") -> None:
        self._coordinator = coordinator
        self._elsewhere = bool(coordinator.settings.shards)
        self._looked, self._stopped = threading.Event(), threading.Event()
        self._state = DRAWING
        self._kept: tuple[Survey, ...] = ()  # of different marks, the newest first

    def look(self, viewer: Viewer | None) -> Chart:
        """What a viewer may see of the newest map; its state says whether there is one."""
        if self._elsewhere:
            return Chart(state=ELSEWHERE)
        self._looked.set()
        kept = self._kept
        return self._coordinator.chart(kept[0], viewer) if kept else Chart(state=self._state)

    def within(
        self, mark: str, left: float, bottom: float, right: float, top: float
    ) -> tuple[str, ...] | None:
        """The fingerprints of what lies in a part of a map; None: there is no map of this mark here."""
        self._looked.set()
        for survey in self._kept:
            if survey.landscape.mark == mark:
                return survey.landscape.within(left / UNIT, bottom / UNIT, right / UNIT, top / UNIT)
        return None

    @property
    def drawn(self) -> bool:
        """Is there a map?"""
        return bool(self._kept)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Draw while the block runs, when somebody has looked."""
        self._stopped.clear()
        thread = threading.Thread(target=self._go_on, name="modelkeeper-maps", daemon=True)
        if not self._elsewhere:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._looked.set()
            if not self._elsewhere:
                thread.join(PATIENCE)

    def _go_on(self) -> None:
        while not self._stopped.is_set():
            self._looked.wait()
            if self._stopped.is_set():
                return
            self._looked.clear()
            began = time.monotonic()
            self._draw(began + LONGEST)
            self._stopped.wait(max(REST, RESTS * (time.monotonic() - began)) if self._kept else REST)

    def _draw(self, end: float) -> None:
        """Draw a map. What cannot be drawn is logged, and tried again when somebody looks."""
        kept = self._kept
        try:
            survey = self._coordinator.survey(
                kept[0] if kept else None,
                stop=self._stopped.is_set,
                late=lambda: time.monotonic() > end,
            )
        except ModelKeeperError as problem:
            self._state = FAILED
            log.warning("the map cannot be drawn, and is tried again: %s", problem)
        except Exception:
            self._state = FAILED
            log.exception("the map cannot be drawn, and is tried again")
        else:
            if survey is None:
                self._state = LATE
                return
            others = [each for each in kept if each.landscape.mark != survey.landscape.mark]
            self._kept = (survey, *others[: KEPT - 1])
