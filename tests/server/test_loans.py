"""Loans between two requests: a plan is made once, seen by those who may, and forgotten when it must be."""

import numpy as np
import pytest

from modelkeeper.coordinator import search
from modelkeeper.errors import UnknownModel
from modelkeeper.meta import Query
from modelkeeper.server.loans import Recent
from modelkeeper.transform import make_plan
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

    monkeypatch.setattr(search, "make_plan", counted)
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
    planned = dict(keeper.coordinator.query(CHILD, ASKED).weights())
    assert len(plans) == 2
    assert remembered.keys() == planned.keys()
    for name, array in remembered.items():
        np.testing.assert_array_equal(array, planned[name])


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


def test_what_is_remembered_is_bounded() -> None:
    recent: Recent[int] = Recent(3)
    for number in range(5):
        recent.put(str(number), number)
        recent.put("0", 0)
    assert [recent.get(str(number)) for number in range(5)] == [0, None, None, 3, 4]
