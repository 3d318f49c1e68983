"""Rows of two models, in columns: what happens to each layer, where rows repeat, how data flows."""

import msgspec
from hypothesis import given

from modelkeeper.graph import Graph
from modelkeeper.server.comparisons import compare
from modelkeeper.server.ui.comparing import MOST_LANES, told, wires
from modelkeeper.server.ui.lanes import lanes
from tests.helpers.generated import inception, networks, resnet, tangles, vgg


@given(networks, networks)
def test_every_layer_is_told_once(parent: Graph, child: Graph) -> None:
    """Law: each layer of both models stands in one row, with its name, kind and shapes."""
    found = compare(parent, child, same_task=True, seconds=60)
    said = msgspec.json.decode(msgspec.json.encode(told(found)))
    assert said["count"] == len(said["action"]) == sum(said["counts"].values())
    for side, graph in (("parent", parent), ("child", child)):
        columns = said[side]
        assert sorted(n for n in columns["rows"] if n >= 0) == list(range(len(graph.layers)))
        assert columns["names"] == [layer.name for layer in graph.layers]
        assert [said["words"][kind] for kind in columns["kinds"]] == [layer.kind for layer in graph.layers]
        shapes = [said["words"][number].replace("×", "x") for number in columns["shapes"]]
        assert all(
            ("x" in shape or shape.isdigit()) == bool(graph.layers[n].tensors)
            for n, shape in enumerate(shapes)
        )
    assert [said["actions"][number] for number in said["action"]] == list(found.actions)
    assert {int(row): tuple(what) for row, what in said["differs"].items()} == {
        number: row.differs for number, row in enumerate(found.rows) if row.differs
    }


@given(tangles(most=20), tangles(most=20))
def test_wires_lead_from_layer_to_layer(parent: Graph, child: Graph) -> None:
    """Law: following the wires of each side gives the edges of its graph, but for those that are left out."""
    found = compare(parent, child, same_task=True, seconds=60)
    for graph, numbers in (
        (parent, [row.parent for row in found.rows]),
        (child, [row.child for row in found.rows]),
    ):
        columns = wires(graph, numbers)
        carried: dict[int, set[int]] = {}
        joined = set()
        for row, number in enumerate(numbers):
            into, through, out = (columns[name][row] for name in ("into", "through", "out"))
            assert set(lanes(into | through)) == set(carried)
            if number is None:
                assert (columns["lane"][row], into, out) == (-1, 0, 0)
                continue
            assert not through >> columns["lane"][row] & 1  # no wire runs through a layer
            joined |= {frozenset((origin, number)) for at in lanes(into) for origin in carried[at]}
            carried = {at: carried[at] for at in lanes(through)}
            for at in lanes(out):
                carried[at] = carried.get(at, set()) | {number}
        edges = {frozenset((e.source, n)) for n, layer in enumerate(graph.layers) for e in layer.inputs}
        assert joined <= edges
        assert len(edges - joined) == columns["left_out"]
        assert columns["width"] <= MOST_LANES + 1


def test_branches_stand_in_lanes_of_their_own() -> None:
    graph = inception(1)
    found = wires(graph, range(len(graph.layers)))
    assert (found["width"], found["left_out"]) == (4, 0)
    assert found["lane"][0] == found["lane"][-1] == 0
    chain = vgg((8, 8))
    assert wires(chain, range(len(chain.layers)))["width"] == 1


def test_blocks_that_repeat_are_folded() -> None:
    found = told(compare(resnet((9,), 8), resnet((12,), 8), same_task=True, seconds=60))
    assert any(period == 5 and again >= 6 for _, period, again in found["folds"])


def test_a_plan_that_takes_too_long_is_left_out() -> None:
    found = compare(vgg((8,) * 40), vgg((16,) * 40), same_task=True, seconds=-1)
    assert told(found)["plan"] is None
    assert set(found.actions) <= {"same", "changed"}


def test_thousands_of_rows_are_few_bytes() -> None:
    deep = vgg((8,) * 2500)
    found = told(compare(deep, deep, same_task=True, seconds=60))
    assert found["count"] == 5003
    assert len(msgspec.json.encode(found)) < 500_000
