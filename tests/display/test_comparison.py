"""A comparison shows every layer of both models once, and says what differs."""

from io import StringIO

from hypothesis import given
from rich.console import Console

from modelkeeper.display.comparison import rows, side_by_side, to_dict
from modelkeeper.graph import Graph
from modelkeeper.matching import align
from tests.helpers import generated as net


@given(net.networks, net.networks)
def test_every_layer_is_shown_once(parent: Graph, child: Graph) -> None:
    found = align(parent, child)
    shown = list(rows(parent, child, found))
    assert sorted(row.parent for row in shown if row.parent is not None) == list(range(len(parent.layers)))
    assert [row.child for row in shown if row.child is not None] == list(range(len(child.layers)))
    assert all(bool(row.differs) == (row.mark == "~") for row in shown)


def test_the_same_model_shows_no_difference() -> None:
    graph = net.resnet()
    assert {row.mark for row in rows(graph, graph, align(graph, graph))} == {"="}


def test_the_table_names_what_differs() -> None:
    parent, child = net.vgg((8, 16)), net.vgg((8, 24, 24), norm=False)
    console = Console(width=160, record=True, file=StringIO())
    console.print(side_by_side(("small", parent), ("large", child), align(parent, child)))
    text = console.export_text()
    for expected in ("small", "large", "16x8x3x3 → 24x8x3x3", "similarity", "only in the parent"):
        assert expected in text
    assert to_dict(parent, child, align(parent, child))["version"] == 1
