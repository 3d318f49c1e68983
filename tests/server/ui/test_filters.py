"""Addresses of views: what they ask for, and that the links on a page lead to what they say."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.server.ui import filters
from modelkeeper.zoo.records import STATES, STORED, Viewer

ME = Viewer("me")
PART = "0123abcd,-10,5.5,20,-7"
fields = st.sampled_from(
    [
        *filters.TEXTS,
        "state",
        *filters.SIZES,
        *filters.SCORES,
        "map",
        "architecture",
        "order",
        "after",
        "before",
    ]
)


@given(st.lists(st.tuples(fields, st.text(max_size=30) | st.sampled_from(["end", "0a" * 8, PART]))))
def test_whatever_is_asked_gives_a_view_or_words(asked: list[tuple[str, str]]) -> None:
    """Law: any address is understood or answered in words, and the address of a view gives the same view."""
    wanted = filters.read(asked, ME)
    assert wanted.filter.viewer == ME
    assert wanted.model in ("", "end", "0a" * 8)
    assert wanted.where in ({}, {"last": True}, {wanted.way: wanted.model})
    again = filters.read(parse_qsl(wanted.address(**({wanted.way: wanted.model} if wanted.way else {}))), ME)
    assert (again.filter, again.order, again.where) == (wanted.filter, wanted.order, wanted.where)
    assert (again.region, again.like) == (wanted.region, wanted.like)
    assert again.problems == ()


@pytest.mark.parametrize(
    ("text", "size"),
    [("500", 500), ("10 kB", 10_000), ("1.5MB", 1_500_000), ("2g", 2 * 10**9), ("1,000", 1000)],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert filters.read([("least_bytes", text)], ME).filter.least_bytes == size


def test_what_cannot_be_understood_is_said_and_left_out() -> None:
    wanted = filters.read(
        [("most_value", "good"), ("least_bytes", "-1"), ("state", "gone"), ("task", "t")], ME
    )
    assert len(wanted.problems) == 3
    assert wanted.given == {"task": "t"}
    assert wanted.filter.states == STORED
    assert filters.read([("state", "all")], ME).filter.states == STATES


def test_columns_sort_as_people_look_and_then_the_other_way() -> None:
    wanted = filters.read([("text", "a&b"), ("after", "0a" * 8)], ME)
    assert wanted.sorted_by("value") == "text=a%26b&order=-value"
    best = filters.read(parse_qsl(wanted.sorted_by("value")), ME)
    assert best.sorted_by("value") == "text=a%26b&order=value"
    assert wanted.sorted_by("name") == "text=a%26b&order=name"
    assert filters.read([("order", "checksum")], ME).order == "-created"


def test_chips_take_away_one_choice_each() -> None:
    wanted = filters.read([("task", "t"), ("least_value", "0.5"), ("text", "x")], ME)
    chips = {name: without for name, _, without in wanted.chips()}
    assert chips == {"task": "text=x&least_value=0.5", "score from": "text=x&task=t"}


def test_parts_of_the_map_and_architectures_of_models() -> None:
    ids = ",".join(f"{number:016x}" for number in range(filters.MOST_LIKE))
    wanted = filters.read([("map", PART), ("architecture", ids)], ME)
    assert wanted.region == filters.Region("0123abcd", -10, -7, 20, 5.5)
    assert len(wanted.like) == filters.MOST_LIKE
    assert [(name, said) for name, said, _ in wanted.chips()] == [
        ("a part", "of the map"),
        ("architecture", "that of 100 models"),
    ]
    for name, text in (("map", "0123abcd,1,2,3"), ("map", "x,1,2,3,4"), ("map", "0123abcd,1,2,3,nan")):
        assert len(filters.read([(name, text)], ME).problems) == 1
    for text in ("net", f"{ids},{'f' * 16}", f"{'0' * 16},x"):
        assert len(filters.read([("architecture", text)], ME).problems) == 1
