"""Loans between two requests: a plan is made once, seen by those who may, and forgotten when it must be."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from modelkeeper.coordinator import planning
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.errors import CorruptWeights, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.server.loans import _plan_key
from modelkeeper.transform import make_plan
from modelkeeper.warmstart.answer import Parent
from modelkeeper.zoo.records import Record
from tests.helpers.service import Team, network, tensors, told

ASKED = Query(data="digits", task="classification")
PARENT, CHILD = network(8), network(12)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each plan that is made."""
    made: list[str] = []

    def counted(*args: object, **named: object) -> object:
        made.append("plan")
        return make_plan(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "make_plan", counted)
    return made


def test_a_query_and_its_weights_are_planned_once(keeper: Team, plans: list[str]) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told(), tensors(PARENT).items())
    loan = ada.query(CHILD, ASKED)
    lent = dict(loan.weights())
    assert lent
    assert len(plans) == 1
    again = dict(loan.weights())  # nor a second time
    assert len(plans) == 1
    for name, array in lent.items():
        np.testing.assert_array_equal(array, again[name])


def test_what_was_planned_is_what_would_be_planned(keeper: Team, plans: list[str]) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told(), tensors(PARENT).items())
    remembered = dict(ada.query(CHILD, ASKED).weights())
    keeper.coordinator._planned = None
    planned = dict(keeper.coordinator.query(CHILD, ASKED).weights())
    assert len(plans) == 2
    assert remembered.keys() == planned.keys()
    for name, array in remembered.items():
        np.testing.assert_array_equal(array, planned[name])


def test_what_was_planned_is_not_planned_again_once_the_loan_is_forgotten(
    keeper: Team, plans: list[str]
) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told(), tensors(PARENT).items())
    parent = ada.query(CHILD, ASKED).answer.parent
    assert dict(keeper.coordinator.lend(CHILD, ASKED, [parent or ""]).weights())
    assert len(plans) == 1


def test_another_question_is_planned_anew(keeper: Team, plans: list[str]) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told(), tensors(PARENT).items())
    loan = ada.query(CHILD, ASKED)
    loan._query = Query(data="letters", task="classification")  # the head does not go along
    dict(loan.weights())
    assert len(plans) == 2


def test_a_dry_run_is_not_remembered(keeper: Team, plans: list[str]) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told(), tensors(PARENT).items())
    loan = ada.query(CHILD, ASKED, dry_run=True)
    assert dict(loan.weights()) == {}
    assert len(plans) == 1


def test_what_one_user_planned_another_may_not_fetch(keeper: Team) -> None:
    ada, bob = keeper.join("ada"), keeper.join("bob")
    ada.register(PARENT, told(visibility="private"), tensors(PARENT).items())
    loan = ada.query(CHILD, ASKED)
    loan._calls = bob._calls
    with pytest.raises(UnknownModel):
        dict(loan.weights())


def test_a_parent_that_is_gone_does_not_lend(keeper: Team) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told("gone"), tensors(PARENT).items())
    loan = ada.query(CHILD, ASKED)
    ada.remove("gone")
    with pytest.raises(UnknownModel):
        dict(loan.weights())


def test_a_parent_whose_file_went_does_not_lend(keeper: Team) -> None:
    ada = keeper.join("ada")
    record = ada.register(PARENT, told(), tensors(PARENT).items()).record
    loan = ada.query(CHILD, ASKED)
    (Path(keeper.coordinator.location(record)) / "model.safetensors").unlink()
    with pytest.raises(CorruptWeights):
        dict(loan.weights())


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Queries are answered by the two newest models; who of them is asked to lend. The first one lends."""
    asked: list[tuple[str, ...]] = []
    answered, lent = LocalCoordinator.query, LocalCoordinator._loan_of

    def query(self: LocalCoordinator, *arguments: Any, **more: Any) -> LocalLoan:
        found = answered(self, *arguments, **more)
        both = tuple(Parent(id=each.id, name=each.name) for each in self.models(order="created", limit=2))
        answer = msgspec.structs.replace(found.answer, parent=both[0].id, parents=both)
        return LocalLoan(answer)

    def loan_of(self: LocalCoordinator, records: Sequence[Record], *more: Any) -> LocalLoan:
        asked.append(tuple(record.name for record in records))
        return lent(self, records[:1], *more)

    monkeypatch.setattr(LocalCoordinator, "query", query)
    monkeypatch.setattr(LocalCoordinator, "_loan_of", loan_of)
    return asked


def test_several_parents_are_asked_together(keeper: Team, pairs: list[tuple[str, ...]]) -> None:
    ada = keeper.join("ada")
    for seed, name in enumerate(("first", "second")):
        ada.register(PARENT, told(name), tensors(PARENT, seed).items())
    loan = ada.query(CHILD, ASKED)
    assert [parent.name for parent in loan.answer.parents] == ["first", "second"]
    assert len(dict(loan.weights())) > 0
    assert len(dict(loan.weights())) > 0
    assert pairs == [("first", "second")], "a stream that was begun is remembered by all its parents"
    with loan.lender() as lender:
        assert lender is None


@pytest.mark.parametrize("name", ["first", "second"])
def test_any_parent_that_is_gone_ends_the_loan(keeper: Team, pairs: list[tuple[str, ...]], name: str) -> None:
    ada = keeper.join("ada")
    for seed, each in enumerate(("first", "second")):
        ada.register(PARENT, told(each), tensors(PARENT, seed).items())
    loan = ada.query(CHILD, ASKED)
    ada.remove(name)
    with pytest.raises(UnknownModel):
        dict(loan.weights())
    assert pairs == []


def test_a_parent_that_may_not_be_seen_lends_to_nobody(keeper: Team, pairs: list[tuple[str, ...]]) -> None:
    ada, bob = keeper.join("ada"), keeper.join("bob")
    ada.register(PARENT, told("first"), tensors(PARENT).items())
    ada.register(PARENT, told("second", visibility="private"), tensors(PARENT, 1).items())
    loan = ada.query(CHILD, ASKED)
    loan._calls = bob._calls
    with pytest.raises(UnknownModel):
        dict(loan.weights())
    assert pairs == []


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says which files are mapped")
def test_what_nobody_has_fetched_holds_no_file(keeper: Team) -> None:
    ada = keeper.join("ada")
    ada.register(PARENT, told("gone"), tensors(PARENT).items())
    ada.query(CHILD, ASKED)
    ada.remove("gone")  # the disk gets its room back
    gc.collect()
    mapped = Path("/proc/self/maps").read_text().splitlines()
    zoo = str(keeper.coordinator.settings.folder.absolute())
    assert not [line for line in mapped if zoo in line and "model.safetensors" in line]


def test_parents_with_the_same_weights_have_plans_of_their_own() -> None:
    planned = [_plan_key(parents, b"{}", ASKED) for parents in (["a" * 16], ["b" * 16], ["a" * 16, "b" * 16])]
    assert len(set(planned)) == 3
