"""A browser for a module of tests: it lives no longer, since its event loop would keep others from theirs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from tests.helpers.browsers import launched

    with launched() as found:
        yield found
