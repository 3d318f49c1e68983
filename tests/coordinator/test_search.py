"""One query step by step: candidates, the choice, the plan, the answer; and what each step does not do."""

from collections.abc import Iterator
from typing import Any

import pytest

from modelkeeper.coordinator import search as module
from modelkeeper.coordinator.candidates import Request
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.search import Clock, Search
from modelkeeper.errors import InvalidSetting, TooLongToPlan
from modelkeeper.matching import prepare
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.transform import make_plan
from tests.helpers import zoos

GRAPH = zoos.net(8, 16)


@pytest.fixture
def coordinator() -> Iterator[LocalCoordinator]:
    opened = LocalCoordinator(Settings(home=":memory:", threads=1))
    yield opened
    opened.close()


def asked(coordinator: LocalCoordinator, **query: Any) -> Search:
    request = Request(GRAPH, prepare(GRAPH), Query(data=zoos.DATA, **query))
    return Search(coordinator.zoo, coordinator.settings, request, Clock())


def test_making_a_search_does_nothing(monkeypatch: pytest.MonkeyPatch, coordinator: LocalCoordinator) -> None:
    zoo = coordinator.zoo
    for owner, name in ((zoo.catalog, "keys"), (zoo.catalog, "with_keys"), (zoo, "index")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("it was asked"))
    asked(coordinator)


def test_a_policy_that_is_not_there_is_told_before_the_search(coordinator: LocalCoordinator) -> None:
    with pytest.raises(InvalidSetting, match="policy cannot be 'best'"):
        asked(coordinator, policy="best")


def test_step_by_step(coordinator: LocalCoordinator) -> None:
    like = zoos.register(coordinator, GRAPH, "like", 0.9)
    wider = zoos.register(coordinator, zoos.net(8, 17), "wider", 0.9)
    search = asked(coordinator)
    pool = search.find()
    assert (pool.considered, pool.proven) == (2, True)
    assert pool.candidates.keys() == pool.records.keys() == {like.id, wider.id}
    assert pool.candidates[like.id].similarity == 1
    assert pool.candidates[like.id].exact is None
    choice = search.choose(pool)
    assert choice.parent is not None
    assert choice.parent.exact is True
    lenders = search.lenders(pool, choice)
    assert lenders is not None
    assert [candidate.id for candidate in lenders.candidates] == [like.id]
    answer = search.answer(pool, choice, lenders, ["a warning"])
    assert (answer.parent, answer.exact, answer.warnings) == (like.id, True, ("a warning",))
    assert [rival.name for rival in answer.runners_up] == ["wider"]
    cold = search.answer(pool, choice)
    assert (cold.parent, cold.reason) == (None, choice.reason)


@pytest.mark.parametrize("policy", ["benefit", "buckets"])
def test_models_of_one_graph_share_a_plan(
    monkeypatch: pytest.MonkeyPatch, coordinator: LocalCoordinator, policy: str
) -> None:
    for number in range(4):
        zoos.register(coordinator, GRAPH, f"net {number}", 0.9 - number / 1000)
    made: list[tuple[Any, ...]] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        return make_plan(*arguments, **options)

    monkeypatch.setattr(module, "make_plan", counted)
    answer = coordinator.query(GRAPH, Query(data=zoos.DATA, policy=policy)).answer
    assert answer.parent_name == "net 0"
    assert len(made) == 1


class Slow:
    """A clock that is late once so many plans were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plans: int) -> None:
        self.begun, self._plans = 0, plans
        monkeypatch.setattr(module, "make_plan", self._make)
        monkeypatch.setattr(Clock, "late", lambda clock: self.begun > plans)

    def _make(self, *arguments: Any, **options: Any) -> Any:
        self.begun += 1
        return make_plan(*arguments, **options)


@pytest.mark.parametrize("policy", ["benefit", "buckets"])
def test_a_plan_that_takes_too_long_is_a_cold_start_that_says_why(
    monkeypatch: pytest.MonkeyPatch, coordinator: LocalCoordinator, policy: str
) -> None:
    zoos.register(coordinator, zoos.net(8, 17), "wide", 0.9)
    Slow(monkeypatch, 0)
    answer = coordinator.query(GRAPH, Query(data=zoos.DATA, policy=policy), seconds=30.0).answer
    assert answer.cold
    assert answer.reason == "there was no time left to plan what wide would lend"
    assert "cut short" in answer.warnings[0]


def test_without_time_for_further_plans_one_that_is_planned_is_taken(
    monkeypatch: pytest.MonkeyPatch, coordinator: LocalCoordinator
) -> None:
    for number in range(4):
        zoos.register(coordinator, zoos.net(4 + number, 16), f"net {number}", 0.9 + number / 100)
    slow = Slow(monkeypatch, 2)
    answer = coordinator.query(GRAPH, Query(data=zoos.DATA)).answer
    assert answer.parent is not None
    assert slow.begun == 3, "the third was not finished, and no other begun"
    assert "cut short" in answer.warnings[0]


def test_weights_that_must_be_planned_again_have_their_time(coordinator: LocalCoordinator) -> None:
    parent = zoos.register(coordinator, zoos.net(8, 17), "wide", 0.9)
    asked = Query(data=zoos.DATA)
    with pytest.raises(TooLongToPlan, match="what wide would lend could not be planned within 0 s"):
        coordinator.lend(GRAPH, asked, [parent.id], seconds=0.0)
    assert coordinator.lend(GRAPH, asked, [parent.id], seconds=60.0).answer.parent == parent.id


def test_searching_leaves_time_for_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("modelkeeper.coordinator.search.time.perf_counter", lambda: now[0])
    clock = Clock(10.0)
    seen = []
    for _ in range(3):
        seen.append((clock.late_to_search(), clock.late()))
        now[0] += 7
    assert seen == [(False, False), (True, False), (True, True)]
