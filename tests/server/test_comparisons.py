"""What was compared lately is not compared again, unless it was cut short; nor is too much of it kept."""

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server import comparisons
from modelkeeper.server.comparisons import Comparisons
from modelkeeper.settings import Settings
from tests.helpers.generated import vgg
from tests.helpers.zoos import register


def test_the_same_two_graphs_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalCoordinator(Settings(home=":memory:"))
    small, wide = register(local, vgg((8, 8)), "small"), register(local, vgg((8, 16)), "wide")
    again = register(local, vgg((8, 16)), "the same again")
    other = register(local, vgg((8, 16)), "of another task", task="other")
    found = Comparisons(local, 60)
    first = found.of(small, wide)
    assert found.of(small, wide) is found.of(small, again) is first
    assert found.of(small, other) is not first  # its head is its own
    assert found.of(wide, small) is not first
    deeper = found.of(small, wide, "deeper", lambda graph: vgg((8, 16, 16)))
    assert len(deeper.child.layers) == len(first.child.layers) + 2
    assert found.of(small, wide, "deeper", lambda graph: vgg((8,))) is deeper
    assert found.of(small, wide) is first
    monkeypatch.setattr(comparisons, "MOST_LAYERS", len(first.parent.layers) + len(first.child.layers))
    little = Comparisons(local, 60)
    kept = little.of(small, wide)
    assert little.of(small, wide) is kept
    little.of(wide, small)
    assert little.of(small, wide) is not kept
    local.close()


def test_what_was_cut_short_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalCoordinator(Settings(home=":memory:"))
    small, wide = register(local, vgg((8,) * 9), "small"), register(local, vgg((16,) * 9), "wide")
    found = Comparisons(local, -1)
    first = found.of(small, wide)
    assert first.plan is None
    assert found.of(small, wide) is first
    monkeypatch.setattr(comparisons, "AGAIN", -1.0)
    hurried = Comparisons(local, -1)
    assert hurried.of(small, wide) is not hurried.of(small, wide)
    local.close()
