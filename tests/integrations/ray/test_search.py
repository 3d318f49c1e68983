"""What is said where a search is set up, before Ray starts."""

import sys
import warnings

import pytest

pytest.importorskip("ray")

from modelkeeper import KeeperWarning
from modelkeeper.integrations.ray import WarmStart


def test_a_path_from_which_ray_starts_no_workers_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for them without a word."""
    monkeypatch.setattr(sys, "executable", "/home/ada/my projects/.venv/bin/python")
    with pytest.warns(KeeperWarning, match=r"my projects.* its path has a space"):
        WarmStart(":memory:")


def test_elsewhere_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/ada/.venv/bin/python")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WarmStart(":memory:")
