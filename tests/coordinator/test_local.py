"""LocalCoordinator: who is asked to lend, and who is counted for it, when parents are several."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.errors import InvalidWeights, UnknownModel
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.warmstart.answer import Answer, Parent
from modelkeeper.zoo.records import BARRED, LENT, Record, Viewer
from tests.helpers import zoos

GRAPH = zoos.net(4)
ASKED = Query(data=zoos.DATA, task=zoos.TASK)


@pytest.fixture
def coordinator() -> Iterator[LocalCoordinator]:
    opened = LocalCoordinator(Settings(home=":memory:"))
    yield opened
    opened.close()


def test_every_parent_that_lends_is_counted(coordinator: LocalCoordinator) -> None:
    one, two, three = (zoos.register(coordinator, GRAPH, name) for name in "abc")
    parents = tuple(Parent(id=each.id, name=each.name, similarity=0.5) for each in (two, one))
    coordinator._lent(Answer(parent=two.id, parents=parents), GRAPH.fingerprint, Viewer("id", name="ann"))
    assert [coordinator.show(each.id).hits for each in (one, two, three)] == [1, 1, 0]
    assert coordinator.show(one.id).last_used > one.last_used
    events = coordinator.log(action=LENT)
    assert [(event.model, event.user) for event in events] == [(one.id, "ann"), (two.id, "ann")]
    assert events[0].detail == "a lent its weights, similarity 0.500"


def test_a_zoo_without_users_knows_who_it_lent_to() -> None:
    with contextlib.closing(LocalCoordinator(Settings(home=":memory:"), user="ann")) as opened:
        zoos.register(opened, GRAPH, "a")
        opened.query(zoos.net(4), ASKED)
        assert [event.user for event in opened.log(action=LENT)] == ["ann"]
        assert [start.user for start in opened.starts()] == ["ann"]


def test_all_parents_must_be_there_to_lend(
    coordinator: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def loan_of(records: Sequence[Record], *more: Any) -> LocalLoan:
        asked.append([record.name for record in records])
        return LocalLoan(Answer())

    monkeypatch.setattr(coordinator, "_loan_of", loan_of)
    one, gone, hidden = (
        zoos.register(coordinator, GRAPH, name, visibility="private" if name == "c" else "public")
        for name in "abc"
    )
    barred = zoos.register(coordinator, GRAPH, "d")
    coordinator.zoo.catalog.update(barred.id, state=BARRED)
    coordinator.remove(gone.id)
    for other in (gone.id, barred.id, hidden.id, "0" * 16):
        for ids in ([one.id, other], [other, one.id]):
            with pytest.raises(UnknownModel, match=other):
                coordinator.lend(GRAPH, ASKED, ids, Viewer("bob"))
    assert asked == []
    coordinator.lend(GRAPH, ASKED, [hidden.id, one.id], Viewer("ann"))
    assert asked == [["c", "a"]]


def perceptron(width: int) -> Graph:
    return describe(nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3)), torch.zeros(2, 6))


def test_what_is_planned_again_is_what_the_query_planned(coordinator: LocalCoordinator) -> None:
    """A service that was restarted goes on with a stream: the same bytes, from the same parents."""
    for name in "abc":
        zoos.register(coordinator, perceptron(6), name)
    child = perceptron(20)
    loan = coordinator.query(child, msgspec.structs.replace(ASKED, most_parents=3))
    ids = [parent.id for parent in loan.answer.parents]
    assert len(ids) == 3
    again = coordinator.lend(child, ASKED, ids)
    assert [parent.id for parent in again.answer.parents] == ids
    assert b"".join(again.stream()) == b"".join(loan.stream())


def test_parents_that_do_not_fit_side_by_side_are_refused(coordinator: LocalCoordinator) -> None:
    one, two = (zoos.register(coordinator, GRAPH, name) for name in "ab")
    with pytest.raises(InvalidWeights, match="a and b do not fit side by side"):
        coordinator.lend(GRAPH, ASKED, [one.id, two.id])
    with pytest.raises(InvalidWeights, match="do not fit"):
        coordinator.lend(zoos.net(8), Query(data="letters", task=zoos.TASK), [one.id, two.id])


def test_parents_may_be_named(coordinator: LocalCoordinator) -> None:
    one, two = (zoos.register(coordinator, GRAPH, name) for name in "ab")
    child = zoos.register(coordinator, GRAPH, "child", parent=["b", one.id, two.id, "a"])
    assert child.parents == (two.id, one.id), "each once, whatever it is called"
    with pytest.raises(UnknownModel, match="nobody"):
        zoos.register(coordinator, GRAPH, "child", parent=[one.id, "nobody"])


def test_the_card_names_all_parents(coordinator: LocalCoordinator) -> None:
    from modelkeeper.zoo.card import card, config

    one, two = (zoos.register(coordinator, GRAPH, name) for name in "ab")
    child = zoos.register(coordinator, GRAPH, "child", parent=[one.id, two.id])
    assert f"warm-started from models `{one.id}` and `{two.id}`." in card(child).decode()
    assert f'"more_parents": [\n    "{two.id}"\n  ]' in config(child).decode()
