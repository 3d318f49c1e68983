"""What a service counts outlives it: once, summed over replicas, whatever fails meanwhile."""

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta, ModelRefused, NotAllowed, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.server.app import Application
from modelkeeper.server.sampling import MOST_WAITING, Sampling, counted
from modelkeeper.server.upkeep import tidy_up
from modelkeeper.settings import DAY, ServiceSettings, Settings
from modelkeeper.zoo.history.samples import Sample
from tests.helpers.service import network, team, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification", minimum_similarity=0.3)


def sums(samples: list[Sample]) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        for name, value in sample.values.items():
            found[name] += value
    return found


def test_what_replicas_counted_is_there_when_they_are_not(tmp_path: Path) -> None:
    """Two services over one zoo, one after the other: an administrator asks the second."""
    with team(tmp_path) as keeper:
        ada = keeper.join("ada")
        assert ada.query(GRAPH, ASKED).answer.cold
        for number in range(5):
            ada.register(GRAPH, told(f"n{number}", 0.9 + number / 1000), tensors(GRAPH, number).items())
        assert not ada.query(GRAPH, ASKED).answer.cold
        with pytest.raises(ModelRefused):
            ada.register(GRAPH, told("poor", 0.1), tensors(GRAPH, 9).items())
    with team(tmp_path) as keeper:
        admin = keeper.join("root", "admin")
        found = sums(admin.samples(step=60.0, since=time.time() - 3600))
        once = {"queries.cold": 1, "queries.warm": 1, "registrations": 5, "refusals": 1, "count.search": 2}
        assert {name: found[name] for name in once} == once
        assert found["bytes.in"] > 5 * 1000
        assert found["requests"] >= 20
        assert found["errors"] == 0
        assert found["seconds.search"] > 0
        with pytest.raises(NotAllowed):
            keeper.join("bob").samples()
        with pytest.raises(InvalidMeta, match="multiple of 60"):
            admin.samples(step=100.0)
        assert keeper.coordinator.samples(until=0.0, since=0.0) == []


def test_what_cannot_be_written_is_written_later_and_once() -> None:
    count, written, down = {"a": 1.0, "b": 2.0}, dict[int, dict[str, float]](), [False]

    def write(minute: int, values: Mapping[str, float]) -> None:
        if down[0]:
            raise ZooUnusable("catalog", "it is away", "Wait.")
        assert minute not in written
        written[minute] = dict(values)

    sampling = Sampling(count.copy, write)
    sampling.note(1)
    sampling.note(2)
    assert written == {1: {"a": 1.0, "b": 2.0}}, "nothing was counted in the second minute"
    down[0] = True
    for minute in range(3, 3 + 2 * MOST_WAITING):
        count["a"] += 1
        sampling.note(minute)
    down[0] = False
    sampling.note(10_000)
    late = written.keys() - {1}
    assert len(late) == MOST_WAITING, "what waits has an end"
    assert max(late) == 2 + 2 * MOST_WAITING
    assert all(written[minute] == {"a": 1.0} for minute in late)


def test_a_service_forgets_old_counts(tmp_path: Path) -> None:
    with closing(LocalCoordinator(Settings(home=str(tmp_path)))) as coordinator:
        service = Application(coordinator, ServiceSettings(auth=False)).service
        coordinator.add_samples(int((time.time() - 80 * DAY) // 60), {"requests": 1.0})
        old = time.time() - 81 * DAY
        tidy_up(service)
        assert len(coordinator.samples(since=old, step=3600.0)) == 1
        tidy_up(service, now=lambda: time.time() + 11 * DAY)
        assert coordinator.samples(since=old, step=3600.0) == []
        service.metrics.evictions.inc(3)
        assert counted(service.metrics)["evictions"] == 3
