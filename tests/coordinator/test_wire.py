"""What travels: requests and errors mean the same on the other side, also between peers of different ages."""

import hashlib

import msgspec
import pytest

from modelkeeper import errors
from modelkeeper.coordinator.wire import Problem, WeightsRequest, to_error, to_problem, weights_key
from modelkeeper.errors import InvalidMeta, ModelKeeperError
from modelkeeper.meta import Query
from modelkeeper.warmstart.answer import Answer, Parent
from modelkeeper.zoo.records import Registration
from tests.test_errors import EXAMPLES

ONE, TWO = "1" * 16, "2" * 16
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


def test_a_request_for_one_parent_is_what_services_of_any_age_expect() -> None:
    request = WeightsRequest.of(b"{}", Query(data="digits"), [ONE])
    sent = msgspec.json.encode(request)
    assert msgspec.json.decode(sent).keys() == {"graph", "query", "parent"}
    assert msgspec.json.decode(sent, type=WeightsRequest).all_parents() == (ONE,)


def test_a_request_for_several_parents_names_all() -> None:
    sent = msgspec.json.encode(WeightsRequest.of(b"{}", Query(), [TWO, ONE]))
    said = msgspec.json.decode(sent)
    assert (said["parent"], said["parents"]) == (TWO, [TWO, ONE])
    assert msgspec.json.decode(sent, type=WeightsRequest).all_parents() == (TWO, ONE)


@pytest.mark.parametrize(
    ("parent", "parents"),
    [
        (ONE, (TWO, ONE)),
        (ONE, (ONE, ONE)),
        ("../x", ()),
        (ONE, (ONE, "../x")),
        (f"{0:016x}", tuple(f"{number:016x}" for number in range(9))),
    ],
)
def test_parents_that_no_answer_names_are_refused(parent: str, parents: tuple[str, ...]) -> None:
    with pytest.raises(InvalidMeta):
        WeightsRequest(graph=msgspec.Raw(b"{}"), parent=parent, parents=parents).all_parents()


def test_weights_are_named_by_all_parents_in_order_and_as_ever_by_one() -> None:
    query = Query(data="digits", task="classification")
    assert (
        weights_key(["abc"], b"{}", query) == hashlib.sha256(b"abc\ndigits\nclassification\n{}").hexdigest()
    )
    keys = {weights_key(sums, b"{}", query) for sums in (["a"], ["b"], ["a", "b"], ["b", "a"], ["ab"])}
    assert len(keys) == 5


def test_what_an_older_peer_says_means_one_parent() -> None:
    assert msgspec.json.decode(b"{}", type=Query).most_parents == 1
    told = msgspec.json.decode(b'{"name": "net", "parent": "x"}', type=Registration)
    assert told.parents == ("x",)
    answer = msgspec.json.decode(b'{"parent": "x", "parent_name": "a", "similarity": 0.5}', type=Answer)
    assert answer.parents == (Parent(id="x", name="a", similarity=0.5),)
    assert msgspec.json.decode(b"{}", type=Answer).parents == ()
