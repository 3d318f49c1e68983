"""One query step by step: candidates, the choice, the plan, the answer; and what each step does not do."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from modelkeeper.coordinator import planning as module
from modelkeeper.coordinator import search as module_of_search
from modelkeeper.coordinator.candidates import Request
from modelkeeper.coordinator.clock import Clock
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.search import Search
from modelkeeper.errors import InvalidSetting, TooLongToPlan
from modelkeeper.matching import prepare
from modelkeeper.meta import Query
from modelkeeper.policy.selection.base import FEW
from modelkeeper.settings import Settings
from modelkeeper.transform import make_plan
from modelkeeper.warmstart.answer import Answer
from tests.coordinator.test_company import net as side_net
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
    for owner, name in ((zoo.catalog, "clock"), (zoo.catalog, "with_keys"), (zoo, "index")):
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
    monkeypatch.setattr("modelkeeper.coordinator.clock.time.perf_counter", lambda: now[0])
    clock = Clock(10.0)
    seen = []
    for _ in range(3):
        seen.append((clock.late_to_search(), clock.late()))
        now[0] += 7
    assert seen == [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize("policy", ["benefit", "buckets"])
def test_of_many_the_first_are_looked_at_and_the_answer_is_the_same(
    policy: str, coordinator: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if all candidates had been read one by one: the choice, its reason, the plan, the runners-up."""
    rng = np.random.default_rng(0)
    nets = [*(zoos.net(8, width) for width in (12, 14, 16, 17, 20)), side_net(4), side_net(5)]
    for number in range(40):
        task, data = zoos.TASK if rng.random() < 0.8 else "other", zoos.DATA if rng.random() < 0.6 else "more"
        graph, value = nets[rng.integers(len(nets))], round(0.5 + 0.5 * float(rng.random()), 2)
        record = zoos.register(coordinator, graph, f"net {number}", task=task, data=data)
        coordinator.zoo.catalog.update(record.id, value=value, finished=bool(rng.random() < 0.8))
    refuted = coordinator.models()[3]
    for user in ("x", "y"):
        coordinator.tell(refuted.id, "raced", -1.0, user=user)
    asked = [
        (
            graph,
            Query(data=data, policy=policy, minimum_similarity=minimum, exclude=exclude, most_parents=2),
        )
        for graph in (GRAPH, zoos.net(8, 15), zoos.net(8, 16, 16), zoos.net(16, 40), side_net(11))
        for data in (zoos.DATA, "more", "")
        for minimum, exclude in ((None, ()), (0.0, ("net 1", "net 2")))
    ]
    answers: dict[int, list[Answer]] = {}
    for few in (FEW, 0):  # one more or one less is planned for
        monkeypatch.setattr(module_of_search, "FEW", few)
        for shortlist in (22, 10_000):
            monkeypatch.setattr(module_of_search, "SHORTLIST", shortlist)
            coordinator._planned = None
            answers[shortlist] = [
                msgspec.structs.replace(coordinator.query(*each, dry_run=True).answer, seconds={})
                for each in asked
            ]
        assert answers[22] == answers[10_000]
        assert any(answer.parent for answer in answers[22])
        assert policy == "buckets" or any(len(answer.parents) == 2 for answer in answers[22])
        assert any(len(answer.runners_up) == 20 for answer in answers[22])


def test_plans_for_others_are_not_made_again(
    coordinator: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoos.register(coordinator, zoos.net(8, 17), "wider", 0.9)
    first = coordinator.query(GRAPH, Query(data=zoos.DATA), dry_run=True).answer
    monkeypatch.setattr(module, "make_plan", lambda *_, **__: pytest.fail("it was planned again"))
    again = coordinator.query(GRAPH, Query(data=zoos.DATA), dry_run=True).answer
    assert msgspec.structs.replace(again, seconds={}) == msgspec.structs.replace(first, seconds={})


def test_a_budget_bounds_the_search_and_is_said_if_it_proves_nothing(coordinator: LocalCoordinator) -> None:
    for width in (12, 14, 17, 20):
        zoos.register(coordinator, zoos.net(8, width), f"net {width}", 0.9)
    free = coordinator.query(GRAPH, Query(data=zoos.DATA)).answer
    assert (free.aligned, free.warnings) == (4, ())
    bounded = coordinator.query(GRAPH, Query(data=zoos.DATA, budget=2)).answer
    assert bounded.aligned == 2
    assert "ended at its budget of 2 alignments" in " ".join(bounded.warnings)
    proven = coordinator.query(GRAPH, Query(data=zoos.DATA, budget=5)).answer
    assert (proven.parent, proven.aligned, proven.warnings) == (free.parent, 4, ())
    few = LocalCoordinator(Settings(home=":memory:", threads=1, budget=1))
    for width in (12, 14):
        zoos.register(few, zoos.net(8, width), f"net {width}", 0.9)
    assert few.query(GRAPH, Query(budget=100)).answer.aligned == 1, "a zoo's budget is for all"
    few.close()


def test_what_is_said_of_a_loser_is_what_holds_if_it_is_chosen(coordinator: LocalCoordinator) -> None:
    """A parent that would be exact is not called inexact because nobody needed its plan."""
    child, query = side_net(8), Query(data=zoos.DATA, task=zoos.TASK)
    zoos.register(coordinator, child, "like", 0.9)
    small = zoos.register(coordinator, side_net(4), "small", 0.89)
    explained = coordinator.query(child, query, dry_run=True, runners_up=True).answer
    without = msgspec.structs.replace(query, exclude=("like",))
    alone = coordinator.query(child, without, dry_run=True).answer
    assert (explained.parent_name, alone.parent, alone.exact) == ("like", small.id, True)
    (lost,) = explained.runners_up
    assert lost.why.endswith(", exact)"), lost.why
    assert lost.why.split()[2] == alone.reason.split()[2].rstrip(","), "the same expected benefit"
    plain = coordinator.query(child, query, dry_run=True).answer
    assert "no plan was made" in plain.runners_up[0].why
