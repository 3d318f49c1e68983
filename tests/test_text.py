"""Numbers, times and foreign text, as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.text import ago, count, counted, first_line, printable, size, with_article


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (12_345, "12 kB"),
        (999_499, "999 kB"),
        (999_999, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (3e18, "3,000.0 PB"),
    ],
)
def test_sizes(number: float, expected: str) -> None:
    assert size(number) == expected


def test_counts() -> None:
    assert [count(number) for number in (67, 1_250, 11_173_962)] == ["67", "1.2 k", "11 M"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "now"),
        (0.2, "now"),
        (59, "59 s ago"),
        (59.6, "1 min ago"),
        (3 * 3600, "3 h ago"),
        (86_400 * 2, "2 d ago"),
        (86_400 * 70, "2 months ago"),
        (86_400 * 800, "2 years ago"),
    ],
)
def test_ages(seconds: float, expected: str) -> None:
    assert ago(seconds) == expected


@given(st.text())
def test_printable_text_holds_nothing_that_steers(text: str) -> None:
    found = printable(text)
    assert all(letter.isprintable() or letter == "\n" for letter in found)
    assert len(found) == len(text)
    assert printable(found) == found


def test_an_error_in_one_line() -> None:
    assert first_line(ValueError("a\nb")) == "ValueError: a"
    assert first_line(KeyError()) == "KeyError"
    assert len(first_line(RuntimeError("x" * 10_000))) < 400


def test_articles() -> None:
    assert [with_article(word) for word in ("torch", "onnx", "Object", "")] == [
        "a torch",
        "an onnx",
        "an Object",
        "a ",
    ]


def test_one_is_one_and_others_are_many() -> None:
    assert [counted(n, "model") for n in (0, 1, 2, 1200)] == [
        "0 models",
        "1 model",
        "2 models",
        "1,200 models",
    ]
