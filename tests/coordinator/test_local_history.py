"""What came of a model, asked in process and over HTTP: curves, children, loans, and who may know of them."""

import dataclasses
from typing import Any

import msgspec
import pytest

from modelkeeper.coordinator import Coordinator
from modelkeeper.errors import NotAllowed, UnknownModel
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.policy.curves import Curve, Point
from modelkeeper.warmstart.race.rules import Race, Runner
from modelkeeper.zoo.history.savings import Saved
from modelkeeper.zoo.history.twins import Curves
from modelkeeper.zoo.records import Record
from tests.helpers.service import Team, network, tensors, told

ASKED = Query(data="digits", task="classification", minimum_similarity=0.3)
GRAPH, CHILD = network(8), network(12)
POINTS = tuple(Point(step, step / 2, 0.5 + step / 1000) for step in range(20))
CURVE = Curve(metric="accuracy", points=POINTS)
RACE = Race(
    "warm", (Runner("warm", "p", 30, 0.5, 0.4, "won"), Runner("cold", "", 30, 2.3, 1.1, "lost")), 60, 3.0
)


def test_a_training_is_drawn_beside_its_cold_twin_or_its_parent(coordinator: Coordinator) -> None:
    def trained(name: str, seed: int, graph: Graph = CHILD, **more: Any) -> Record:
        curve = more.pop("curve", CURVE)
        said = msgspec.structs.replace(told(name, **more), curve=curve)
        return coordinator.register(graph, said, tensors(graph, seed).items()).record

    parent = trained("parent", 0, GRAPH)
    assert coordinator.curves(parent) == Curves(curve=CURVE, cold=True)
    child = trained("child", 1, parent=parent.id)
    beside = Curves(curve=CURVE, cold=False, beside=CURVE, kind="parent", model=parent.id, name="parent")
    assert coordinator.curves(child) == beside
    better = msgspec.structs.replace(CURVE, points=(Point(1, 1.0, 0.99),))
    trained("poor twin", 2)
    best = trained("twin", 3, curve=better)
    for number, other in enumerate(({"data": "x"}, {"task": "x"}, {"graph": GRAPH}, {"curve": None})):
        trained("other", 4 + number, **other)  # type: ignore[arg-type]
    trained("by another metric", 8, curve=msgspec.structs.replace(better, metric="f1"))
    trained("warm", 9, curve=better, parent=parent.id)
    assert coordinator.curves(child) == Curves(
        curve=CURVE, cold=False, beside=better, kind="cold twin", model=best.id, name="twin", twins=2
    )
    silent = trained("silent", 10, parent=parent.id, curve=None)
    assert coordinator.curves(silent) == Curves(cold=False)
    apart = trained("apart", 11, parent=parent.id, curve=msgspec.structs.replace(CURVE, metric="loss"))
    assert coordinator.curves(apart).beside is None


def test_children_say_what_they_gained(coordinator: Coordinator) -> None:
    parent = coordinator.register(GRAPH, told("parent", 0.8), tensors(GRAPH).items()).record
    assert coordinator.children(parent) == []
    for number, (name, score) in enumerate((("better", 0.9), ("worse", 0.75))):
        said = msgspec.structs.replace(told(name, score, parent=parent.id), curve=CURVE, similarity=0.5)
        coordinator.register(CHILD, said, tensors(CHILD, number).items())
    other = coordinator.register(GRAPH, told("other"), tensors(GRAPH, 7).items()).record
    joined = told("joined", parent=[other.id, parent.id], data="elsewhere")
    coordinator.register(CHILD, joined, tensors(CHILD, 8).items())
    third, second, first = coordinator.children(parent)
    assert [child.name for child in (first, second, third)] == ["better", "worse", "joined"]
    assert first.gain == pytest.approx(0.1)
    assert second.gain == pytest.approx(-0.05)
    assert (third.gain, third.similarity, first.similarity) == (None, None, 0.5)
    assert (first.kind, first.matched) == ("", Saved()), "nobody knows"
    slow = msgspec.structs.replace(CURVE, points=tuple(Point(p.step + 7, p.seconds, p.score) for p in POINTS))
    said = msgspec.structs.replace(told("twin"), curve=slow)
    coordinator.register(CHILD, said, tensors(CHILD, 9).items())
    assert coordinator.children(parent)[2].matched == Saved(1, 7.0, 0.0)
    assert coordinator.children(parent)[2].kind == "matched"
    assert coordinator.children(parent, limit=2) == coordinator.children(parent)[:2]
    assert coordinator.children(parent, before=second.id) == coordinator.children(parent)[2:]
    assert coordinator.children(parent, before="0" * 16) == []


def test_loans_say_who_asked_and_what_came_of_it(coordinator: Coordinator) -> None:
    parent = coordinator.register(GRAPH, told("parent"), tensors(GRAPH).items()).record
    assert coordinator.loans(parent) == []
    answers = [coordinator.query(CHILD, ASKED).answer for _ in range(3)]
    said = msgspec.structs.replace(told("child"), start=answers[0].start)
    child = coordinator.register(CHILD, said, tensors(CHILD).items()).record
    coordinator.raced(answers[1].start, dataclasses.replace(RACE, winner="cold"))
    loans = coordinator.loans(parent)
    assert [loan.start for loan in loans] == [answer.start for answer in reversed(answers)]
    assert [loan.model for loan in loans] == ["", "", child.id]
    assert [loan.lost for loan in loans] == [False, True, False]
    assert {(loan.child, loan.exact) for loan in loans} == {(CHILD.fingerprint, answers[0].exact)}
    assert loans[0].similarity == answers[2].similarity
    assert coordinator.loans(parent, limit=1) == loans[:1]
    assert coordinator.loans(parent, before=loans[0].number) == loans[1:]


def test_what_came_of_a_model_is_told_as_far_as_it_may_be_seen(keeper: Team) -> None:
    """Private children of others leak by no name, no number, no curve; who borrowed is known, as ever."""
    ada, bob = keeper.join("ada"), keeper.join("bob")
    admin, partner = keeper.join("root", "admin"), keeper.join("eve", "partner")
    parent = bob.register(GRAPH, told("open"), tensors(GRAPH).items()).record
    answer = ada.query(CHILD, ASKED).answer
    said = msgspec.structs.replace(
        told("secret", visibility="private", parent=parent.id), start=answer.start, curve=CURVE
    )
    secret = ada.register(CHILD, said, tensors(CHILD).items()).record
    for who, knows in ((ada, True), (admin, True), (bob, False)):
        assert [child.id for child in who.children(parent)] == [secret.id] * knows
        [loan] = who.loans(parent)
        assert (loan.user, loan.similarity) == ("ada", answer.similarity)
        assert (loan.model, loan.child, loan.start, loan.exact) == (
            (secret.id, CHILD.fingerprint, answer.start, answer.exact) if knows else ("", "", "", None)
        )
        told_of = who.children(parent), who.loans(parent), who.savings("user"), who.starts()
        assert ("secret" in str(told_of)) is knows
        assert (secret.id in str(told_of)) is knows
    twin = msgspec.structs.replace(told("twin", visibility="private"), curve=CURVE)
    hidden = ada.register(CHILD, twin, tensors(CHILD, 1).items()).record
    open_child = msgspec.structs.replace(told("shown", parent=parent.id), curve=CURVE)
    shown = ada.register(CHILD, open_child, tensors(CHILD, 2).items()).record
    assert ada.curves(shown).model == hidden.id
    assert bob.curves(shown) == Curves(curve=CURVE, cold=False)
    assert ada.children(parent)[0].kind == "matched"
    assert bob.children(parent)[0].kind == ""
    with pytest.raises(UnknownModel):
        bob.curves(secret)
    for asked in (partner.curves, partner.children, partner.loans):
        with pytest.raises(NotAllowed):
            asked(parent)
