"""Errors on the wire: the same error on the other side, also between peers of different ages."""

import pytest

from modelkeeper import errors
from modelkeeper.coordinator.wire import Problem, to_error, to_problem
from modelkeeper.errors import ModelKeeperError
from tests.test_errors import EXAMPLES

TRAVELLING = [error for error in EXAMPLES if error.status != 500]
NAMES = {type(error).__name__: error for error in EXAMPLES}


@pytest.mark.parametrize("error", TRAVELLING, ids=lambda error: error.code)
def test_an_error_is_the_same_on_the_other_side(error: ModelKeeperError) -> None:
    again = to_error(to_problem(error, "request"), error.status)
    assert type(again) is type(error)
    assert str(again) == str(error)


@pytest.mark.parametrize(
    "error", [error for error in EXAMPLES if error.status == 500], ids=lambda error: error.code
)
def test_an_error_that_no_service_sends_is_not_believed(error: ModelKeeperError) -> None:
    assert to_error(to_problem(error)) is None


@pytest.mark.parametrize(
    ("name", "fields", "status", "kind"),
    [
        ("UnknownModel", ("a", (), ()), 404, errors.UnknownModel),
        ("NotAllowed", ("no token was sent", "Give one."), 401, errors.NotAuthenticated),
        ("NotAllowed", ("it belongs to ada", "Ask her."), 403, errors.NotAllowed),
        ("QuotaExceeded", ("too often", "Wait.", "0.2"), 429, errors.TooManyRequests),
        ("QuotaExceeded", ("too much", "Remove some.", ""), 403, errors.QuotaExceeded),
        ("ZooUnusable", ("the coordinator", "its disk is full", "Tell them."), 503, errors.ZooUnusable),
    ],
)
def test_an_older_peer_that_names_only_the_class_is_understood(
    name: str, fields: tuple[object, ...], status: int, kind: type[ModelKeeperError]
) -> None:
    error = to_error(Problem(error=name, fields=fields), status)
    assert type(error) is kind


@pytest.mark.parametrize("error", TRAVELLING, ids=lambda error: error.code)
def test_an_older_peer_finds_a_class_that_it_knows(error: ModelKeeperError) -> None:
    newer = {"DiskFull", "NotAuthenticated", "TooManyRequests"}
    problem = to_problem(error)
    assert problem.error not in newer
    assert isinstance(error, type(NAMES[problem.error]))


def test_a_newer_peer_with_an_unknown_code_is_understood_by_the_class() -> None:
    problem = Problem(error="ModelRefused", code="refused_on_sundays", fields=("a", "it is sunday", "Wait"))
    assert type(to_error(problem, 409)) is errors.ModelRefused


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon", None])
def test_nobody_waits_for_nonsense(seconds: object) -> None:
    assert to_error(Problem(error="", code="too_many_requests", fields=("a", "b", seconds))) is None
