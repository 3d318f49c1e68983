"""Several services over one catalog act as one: tokens, rates, leaders and the index; on both databases."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ZooUnusable
from modelkeeper.server import beat as beats
from modelkeeper.server import guard, upkeep
from modelkeeper.server.app import Application
from modelkeeper.server.limits import Rates
from modelkeeper.server.serve import serving, working
from modelkeeper.server.service import Service
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.accounts.holders import METRICS
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.replicas import leader as leading
from modelkeeper.zoo.replicas.shared_rates import Spent
from tests.helpers import zoos

WAIT = 60.0


@pytest.fixture(params=["sqlite", "postgresql"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], LocalCoordinator]]:
    """Opens coordinators that share a catalog and a store."""
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    if request.param == "postgresql":
        catalog = str(request.getfixturevalue("postgres_url"))
    with ExitStack() as stack:

        def open_one() -> LocalCoordinator:
            home, blobs = str(tmp_path / f"home-{time.monotonic_ns()}"), str(tmp_path / "blobs")
            coordinator = LocalCoordinator(Settings(home=home, catalog=catalog, blobs=blobs, threads=1))
            stack.callback(coordinator.close)
            return coordinator

        yield open_one


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_revoked_or_changed_is_so_everywhere(replica: Callable[[], LocalCoordinator]) -> None:
    """A token that is used all the time is refused at both services once it is revoked at one."""
    coordinators = [replica(), replica()]
    accounts = coordinators[0].accounts
    accounts.add_user("ada")
    token = accounts.add_token("ada", "read")
    headers = {"authorization": f"Bearer {token}"}
    with ExitStack() as stack:
        settings = ServiceSettings(port=0)
        urls = [stack.enter_context(serving(each, settings)) for each in coordinators]

        def statuses() -> list[int]:
            return [httpx.get(f"{url}/v1/count", headers=headers).status_code for url in urls]

        assert statuses() == [200, 200]
        accounts.add_user("ada", rate=0.001)
        until(lambda: 429 in statuses())
        accounts.add_user("ada", rate=1000.0)
        until(lambda: statuses() == [200, 200])
        assert accounts.revoke(token.split("_")[1])
        until(lambda: statuses() == [401, 401])
        again = accounts.add_token("ada", "read")
        headers["authorization"] = f"Bearer {again}"
        assert statuses() == [200, 200]
        accounts.remove_user("ada")
        until(lambda: statuses() == [401, 401])


class Two:
    """Two services over one catalog, and a token that both have believed."""

    def __init__(self, coordinators: list[LocalCoordinator], urls: list[str]) -> None:
        self._accounts, self._urls = coordinators[0].accounts, urls
        self._accounts.add_user("ada")
        self._token = self._accounts.add_token("ada", "read")
        assert self.statuses() == [200, 200]

    def statuses(self) -> list[int]:
        headers = {"authorization": f"Bearer {self._token}"}
        return [httpx.get(f"{url}/v1/count", headers=headers).status_code for url in self._urls]

    def revoke(self) -> None:
        assert self._accounts.revoke(self._token.split("_")[1])


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[beats.Beat]:
    """The beats of all services."""
    made: list[beats.Beat] = []
    init = beats.Beat.__init__

    def noted(self: beats.Beat, *arguments: Any) -> None:
        init(self, *arguments)
        made.append(self)

    monkeypatch.setattr(beats.Beat, "__init__", noted)
    return made


@contextmanager
def both(open_one: Callable[[], LocalCoordinator], heartbeats: list[beats.Beat]) -> Iterator[Two]:
    coordinators = [open_one(), open_one()]
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(each, ServiceSettings(port=0))) for each in coordinators]
        until(lambda: len(heartbeats) == 2 and all(beat.accounts is not None for beat in heartbeats))
        yield Two(coordinators, urls)


NEVER = 3600.0  # seconds: not in a test


@pytest.mark.parametrize("replica", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("beat", "told", "remembered"),
    [(NEVER, True, NEVER), (0.5, False, NEVER), (NEVER, False, 0.9)],
    ids=["told", "beats", "forgets"],
)
def test_each_of_three_ways_ends_a_revoked_token_everywhere(
    replica: Callable[[], LocalCoordinator],
    heartbeats: list[beats.Beat],
    monkeypatch: pytest.MonkeyPatch,
    beat: float,
    told: bool,
    remembered: float,
) -> None:
    """What the database tells, the beat, and forgetting: each by itself, and each in less than a second."""
    assert beats.BEAT < 1
    assert guard.REMEMBERED < 1
    monkeypatch.setattr(beats, "BEAT", beat)
    monkeypatch.setattr(guard, "REMEMBERED", remembered)
    monkeypatch.setattr(Database, "tells", told)
    with both(replica, heartbeats) as two:
        two.revoke()
        until(lambda: two.statuses() == [401, 401])


def test_the_first_beat_after_a_token_is_revoked_ends_it(
    replica: Callable[[], LocalCoordinator], heartbeats: list[beats.Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock: nobody is told, nothing is forgotten, and beats are those of the test."""
    monkeypatch.setattr(beats, "BEAT", NEVER)
    monkeypatch.setattr(guard, "REMEMBERED", NEVER)
    monkeypatch.setattr(Database, "tells", False)
    with both(replica, heartbeats) as two:
        for beat in heartbeats:
            beat.once()
        assert two.statuses() == [200, 200]
        two.revoke()
        assert two.statuses() == [200, 200], "neither knows"
        heartbeats[1].once()
        assert two.statuses() == [200, 401]
        heartbeats[0].once()
        assert two.statuses() == [401, 401]


def test_a_token_is_believed_for_less_than_a_second_unless_it_is_confirmed(
    replica: Callable[[], LocalCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that the test holds: what is known holds as of the last beat that saw no change."""
    coordinator = replica()
    beat, now = beats.Beat(coordinator.replica, Rates()), 100.0
    monkeypatch.setattr("modelkeeper.server.beat.time", SimpleNamespace(monotonic=lambda: now))
    assert beat.accounts is None
    assert beat.confirmed(None, 5.0) == 5.0, "nobody has asked yet"
    beat.once()
    before = beat.accounts
    now = 200.0
    beat.once()
    assert beat.confirmed(before, 5.0) == 200.0
    coordinator.accounts.add_user("ada")
    assert beat.confirmed(before, 5.0) == 200.0, "it cannot know yet"
    now = 300.0
    beat.once()
    assert beat.confirmed(before, 5.0) == -math.inf, "looked up before the change"
    assert beat.confirmed(beat.accounts, 299.0) == 300.0


def test_three_services_let_through_what_one_would(replica: Callable[[], LocalCoordinator]) -> None:
    """2 requests a second, asked of three in turn: not three times as many come through."""
    coordinators = [replica(), replica(), replica()]
    coordinators[0].accounts.add_user("ada", rate=2.0)
    headers = {"authorization": f"Bearer {coordinators[0].accounts.add_token('ada', 'read')}"}
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(each, ServiceSettings(port=0))) for each in coordinators]
        began, through = time.monotonic(), 0
        while time.monotonic() < began + 5:
            for url in urls:
                through += httpx.get(f"{url}/v1/count", headers=headers).status_code == 200
        lasted = time.monotonic() - began
    assert through >= 4
    late = 2.0  # seconds after which all have settled, on a machine that is busy
    assert through <= 4 + 2 * lasted + 2 * (4 + 2 * late), "each by itself would let 3 x (4 + 2 x lasted)"


def test_a_catalog_that_is_down_stops_no_beat(
    replica: Callable[[], LocalCoordinator], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared, rates = replica().replica, Rates()
    beat = beats.Beat(shared, rates)

    def fail(spent: object) -> None:
        raise ZooUnusable("the catalog", "it is away", "Wait.")

    with monkeypatch.context() as patch:
        patch.setattr(shared, "settle", fail)
        rates.take("ada", 2.0)
        beat.once()
        beat.once()
    assert sum("does not answer" in line for line in caplog.messages) == 1, "said once"
    rates.take("ada", 2.0)
    beat.once()
    assert rates.spent() == {}
    assert shared.settle({"ada": Spent(0.001)})["ada"] <= 2 + 2 * 0.001, "both are settled"


def test_one_leader_tidies_and_another_when_it_is_gone(
    replica: Callable[[], LocalCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two services one tidies up; it sleeps for good, its lease runs out, and the other goes on."""
    monkeypatch.setattr(leading, "SECONDS", 1.5)
    monkeypatch.setattr(leading, "SPARE", 0.5)
    monkeypatch.setattr(beats, "RENEWED", 0.2)
    tidied: list[Service] = []
    seen = threading.Event()

    def note(service: Service, **more: object) -> None:
        tidied.append(service)
        seen.set()

    monkeypatch.setattr(upkeep, "tidy_up", note)
    settings = ServiceSettings(auth=False, upkeep=0.01)
    services = [Application(replica(), settings).service for _ in range(2)]
    with working(services[0]), working(services[1]):
        assert seen.wait(WAIT)
        first = tidied[0]
        second = services[1 - services.index(first)]
        assert first.coordinator.stats()["leader"] == second.coordinator.stats()["leader"] != ""
        scraped = second.metrics.text().decode()
        assert f'modelkeeper_zoo_leader{{leader="{second.coordinator.stats()["leader"]}"}} 1.0' in scraped
        assert set(tidied) == {first}
        monkeypatch.setattr(first.beat._replica.leader, "take", lambda: False)  # it sleeps
        until(lambda: tidied[-1] is second)
        assert not first.beat.leads, "it knew before another one could lead"


def test_the_index_follows_before_anybody_asks(replica: Callable[[], LocalCoordinator]) -> None:
    one, two = replica(), replica()
    service = Application(two, ServiceSettings(auth=False)).service
    with working(service):
        until(lambda: service.readiness.index_open)
        zoos.register(one, zoos.net(4))
        until(lambda: len(two.zoo.follower._followed.index) == 1)


def test_who_may_scrape_sees_the_zoo_and_the_replica_apart(replica: Callable[[], LocalCoordinator]) -> None:
    coordinators = [replica(), replica()]
    coordinators[0].accounts.add_user("prometheus")
    token = coordinators[0].accounts.add_token("prometheus", METRICS)
    zoos.register(coordinators[0], zoos.net(4))
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(each, ServiceSettings(port=0))) for each in coordinators]
        headers = {"authorization": f"Bearer {token}"}
        httpx.get(f"{urls[0]}/healthz")
        first, second = (httpx.get(f"{url}/metrics", headers=headers).text for url in urls)
        assert "modelkeeper_zoo_models 1.0" in first
        assert "modelkeeper_zoo_models 1.0" in second
        probed = 'modelkeeper_requests_total{method="GET",route="/healthz",status="200"} 1.0'
        assert (probed in first, probed in second) == (True, False)
