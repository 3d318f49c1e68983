"""Tests for what others add to modelkeeper: every front end runs `FrontendTests`. Needs pytest."""

import pytest

pytest.register_assert_rewrite("modelkeeper.testing.frontends")

from modelkeeper.testing.frontends import FrontendTests  # noqa: E402 (asserts are rewritten at import)

__all__ = ["FrontendTests"]
