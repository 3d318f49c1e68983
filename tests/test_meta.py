"""Meta: what may be said of parents, and how many may lend."""

from typing import Any

import pytest

from modelkeeper.errors import InvalidMeta
from modelkeeper.meta import MOST_PARENTS, Query, checked, read_query, read_registration, read_training
from modelkeeper.zoo.records import MAX_PARENTS, Registration


def test_so_many_parents_may_lend_as_is_said() -> None:
    assert read_query({}).most_parents == read_query({"most_parents": None}).most_parents == MOST_PARENTS
    assert [read_query({"most_parents": most}).most_parents for most in (1, 2, 8)] == [1, 2, 8]
    assert Query().most_parents == 1, "what an older client means"
    asked, registered = read_training({"data": "digits", "most_parents": 2, "name": "net"})
    assert asked == {"data": "digits", "most_parents": 2}
    assert registered == {"data": "digits", "name": "net"}


@pytest.mark.parametrize("most", [0, 9, -1, True, False, 2.0, "2", [2], float("nan")])
def test_what_is_no_number_of_parents_is_refused(most: Any) -> None:
    with pytest.raises(InvalidMeta, match=r"most_parents.*give a whole number from 1 to 8"):
        read_query({"most_parents": most})
    with pytest.raises(InvalidMeta, match="most_parents"):
        read_training({"most_parents": most})


def test_how_many_lend_is_nothing_to_register() -> None:
    with pytest.raises(InvalidMeta, match="'most_parents'"):
        read_registration({"accuracy": 0.5, "most_parents": 2}, "net")


@pytest.mark.parametrize(
    ("said", "parents"),
    [
        (None, ()),
        ("", ()),
        ([], ()),
        ("a", ("a",)),
        (["a"], ("a",)),
        (("b", "a", "c"), ("b", "a", "c")),
        (["a", "b", "a"], ("a", "b")),
    ],
)
def test_a_model_may_be_said_to_have_started_from_several(said: Any, parents: tuple[str, ...]) -> None:
    told = read_registration({"accuracy": 0.5, "parent": said}, "net")
    assert told.parents == parents
    assert (told.parent, told.more_parents) == ((*parents, "")[0], parents[1:])
    assert checked(told) == told


@pytest.mark.parametrize(
    "said", [["a", ""], ["a", 1], 3, {"a": 1}, ["a\n"], [str(number) for number in range(MAX_PARENTS + 1)]]
)
def test_parents_that_cannot_be_so_are_refused(said: Any) -> None:
    if said == ["a\n"]:  # it is stripped, as other names are
        assert read_registration({"accuracy": 0.5, "parent": said}, "net").parents == ("a",)
        return
    with pytest.raises(InvalidMeta, match="parent"):
        read_registration({"accuracy": 0.5, "parent": said}, "net")


def test_a_second_parent_without_a_first_is_refused() -> None:
    with pytest.raises(InvalidMeta, match="parent"):
        checked(Registration(name="net", more_parents=("a",)))
