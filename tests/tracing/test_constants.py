"""The numbers of constants in a few characters: the same for the same, however long or precise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from modelkeeper.tracing.constants import MOST_NUMBERS, UNKNOWN, numbers_text
from modelkeeper.weights import Array


def test_one_number_however_often() -> None:
    assert numbers_text(np.zeros((3, 4))) == numbers_text(np.zeros(7)) == "0.0"
    assert numbers_text(np.array(0.25)) == "0.25"
    assert numbers_text(np.ones((2, 2), bool)) == "True"


def test_a_count_however_long() -> None:
    assert numbers_text(np.arange(9)) == numbers_text(np.arange(5)[:, None]) == "from 0 by 1.0"
    assert numbers_text(np.tile(np.arange(5), (3, 1))) == "from 0 by 1.0"
    assert len({numbers_text(np.arange(*ends)) for ends in ((0, 5), (1, 6), (0, 9, 2))}) == 3


def test_a_float_type_does_not_change_what_numbers_are() -> None:
    numbers = np.random.default_rng(0).normal(size=50).astype(np.float32)
    narrow = (numbers.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)  # as bfloat16 holds them
    assert numbers_text(numbers) == numbers_text(narrow) == numbers_text(numbers.astype(np.float64))
    assert numbers_text(numbers) != numbers_text(numbers * 1.01)


@pytest.mark.parametrize("odd", [np.zeros(0), np.zeros(MOST_NUMBERS + 1), np.array(["a"]), np.array([1j])])
def test_what_has_no_numbers_that_count_is_unknown(odd: Array) -> None:
    assert numbers_text(odd) == UNKNOWN


masks = arrays.arrays(np.int8, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(0, 1))


@given(masks, masks)
def test_masks_of_one_shape_have_the_same_text_only_if_they_are_the_same(one: Array, other: Array) -> None:
    same = numbers_text(one) == numbers_text(other)
    if one.shape == other.shape:
        assert same == np.array_equal(one, other)
