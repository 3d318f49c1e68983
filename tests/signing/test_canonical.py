"""One sequence of bytes for each value, and one value for each sequence."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.signing.canonical import canonical, number, parsed

TEXTS = st.text(st.characters(codec="utf-8"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_bytes_stand_for_the_value_that_they_were_made_of(value: Any) -> None:
    assert parsed(canonical(value)) == value
    assert canonical(parsed(canonical(value))) == canonical(value)


@given(st.dictionaries(TEXTS, st.integers(0, 9), max_size=6))
def test_the_order_of_names_does_not_matter(value: dict[str, int]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_to_the_same_double(value: float) -> None:
    again = float(number(value))
    assert again == value
    assert math.copysign(1, again) == math.copysign(1, value)


def test_numbers_are_texts_so_that_no_library_decides_how_they_are_written() -> None:
    assert number(1) == number(1.0) == "1.0"
    for value in (0.5, 1.0, float("nan"), 2**53 + 1):
        with pytest.raises(ValueError, match="text"):
            canonical({"value": value})
    with pytest.raises(ValueError, match="finite"):
        number(float("inf"))


@pytest.mark.parametrize(
    "other",
    [
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'"\\u0041"',
        b"1.0",
        b"[1,]",
        b"\xff",
        b'"\\ud800"',
        b"",
    ],
)
def test_other_bytes_stand_for_nothing(other: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (whatever is wrong, it is one error)
        parsed(other)


def test_deep_nests_are_an_error_and_no_crash() -> None:
    with pytest.raises(ValueError, match="nothing"):
        parsed(b"[" * 100_000 + b"]" * 100_000)
