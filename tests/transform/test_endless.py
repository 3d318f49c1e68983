"""Does planning end in time, whatever is sent? Wiring that keeps a planner busy, or breaks it."""

from collections.abc import Callable

import pytest

from modelkeeper.graph import Graph
from modelkeeper.matching import align
from modelkeeper.patience import OutOfPatience, waiting
from modelkeeper.transform import make_plan, side_by_side
from tests.helpers.generated import Builder, transformer, vgg

DEEP = 3000  # more than Python recurses


def sums_of_sums(count: int = 90) -> Graph:
    """The number of ways through it doubles with each layer or two."""
    b = Builder()
    last = [b.add("input"), b.conv(0, 8, 8)]
    for _ in range(count):
        last = [last[1], b.add("add", *last)]
    b.add("output", last[1])
    return b.graph()


def products_of_products(count: int = 90) -> Graph:
    """A branch that nothing in it makes zero, which is known after each way through it was gone."""
    b = Builder()
    b.add("input")
    main = b.conv(0, 8, 8, norm=False)
    branch = b.conv(main, 8, 8, norm=False)
    last = [b.add("concat", branch, main), b.add("concat", main, branch)]
    for _ in range(count):
        last = [last[1], b.add("multiply", *last)]
    b.add("output", b.add("add", main, last[1]))
    return b.graph()


def a_chain(count: int = DEEP) -> Graph:
    return vgg([8] * count, False)


def sums_in_a_row(count: int = DEEP) -> Graph:
    """Each adds a branch to the last, and there is a norm before them all."""
    b = Builder()
    b.add("input")
    at = b.norm(b.conv(0, 8, 8), 8, "layer_norm")
    for _ in range(count):
        at = b.add("add", at, b.conv(at, 8, 8, 1, norm=False))
    b.add("output", b.norm(at, 8, "layer_norm"))
    return b.graph()


HOSTILE: dict[str, Callable[[], Graph]] = {
    "sums of sums": sums_of_sums,
    "products of products": products_of_products,
    "a chain": a_chain,
    "sums in a row": lambda: sums_in_a_row(1200),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_plan_is_made_in_time_that_grows_with_the_graph(kind: str) -> None:
    """Some of these took time that doubles with each layer, or more depth than Python has."""
    hostile, small = HOSTILE[kind](), vgg((8, 8))
    for parent, child in ((small, hostile), (hostile, small)):
        plan = make_plan(parent, child, align(parent, child))
        assert len(plan.entries) == len(child.tensors)
        assert make_plan(parent, child, ()).coverage == 0


@pytest.mark.parametrize("calls", [0, 1, 10, 100, 1000])
def test_a_plan_that_nobody_waits_for_any_more_is_not_finished(calls: int) -> None:
    parent, child = transformer(20, 16, 16), transformer(24, 16, 24)
    alignment = align(parent, child)
    left = [calls]

    def late() -> bool:
        left[0] -= 1
        return left[0] < 0

    with waiting(late), pytest.raises(OutOfPatience):
        make_plan(parent, child, alignment)
    assert left[0] == -1, "it ended at the first time that it was told so"
    left[0] = calls
    with waiting(late), pytest.raises(OutOfPatience):
        side_by_side([(parent, alignment), (parent, alignment)], child)
    assert make_plan(parent, child, alignment).entries


def test_it_is_asked_often() -> None:
    """At least once for each layer and tensor: no long stretch goes by unasked."""
    asked = [0]

    def late() -> bool:
        asked[0] += 1
        return False

    for child in (transformer(30, 16, 24), vgg([8] * 200), sums_in_a_row(100)):
        asked[0] = 0
        with waiting(late):
            make_plan(vgg((8, 8)), child, align(vgg((8, 8)), child))
        assert asked[0] > len(child.layers) + len(child.tensors)
