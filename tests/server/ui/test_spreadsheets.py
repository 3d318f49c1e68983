"""Cells that no spreadsheet runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.server.ui.spreadsheets import cell


@given(st.text(max_size=20))
def test_no_text_begins_as_a_formula(text: str) -> None:
    """Law: text comes through as it is, or with an apostrophe in front."""
    said = cell(text)
    assert not said.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert said in (text, f"'{text}")


@pytest.mark.parametrize(
    ("value", "said"),
    [(-0.5, -0.5), (None, ""), (("a", "=b"), "a, =b"), (("=b", "a"), "'=b, a"), (" =1", "' =1")],
)
def test_numbers_and_lists(value: object, said: object) -> None:
    assert cell(value) == said
