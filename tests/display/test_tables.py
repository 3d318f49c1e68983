"""Graphs as tables."""

import io

from hypothesis import given
from rich.console import Console, RenderableType

from modelkeeper.display.tables import report
from modelkeeper.graph import Atom, Axis, Edge, Fixed, Graph, Layer, Note, Pin, Space, Tensor
from tests.helpers.strategies import graphs

WEIGHT = Tensor("fc.weight", "weight", "float32", (Axis("out", Atom(0, 4)), Axis("in", Fixed(3, "input"))))
GRAPH = Graph(
    "torch",
    (
        Layer("x", "input"),
        Layer("fc", "linear", (Edge(0, ("relu", "flatten")),), (WEIGHT,), {"scale": 0.5, "stride": (2, 1)}),
        Layer("again", "linear", (Edge(0),), (WEIGHT,)),
        Layer("[red]\x1b[2J", "output", (Edge(1), Edge(2))),
    ),
    (Space(4, (Pin("output"),)),),
    (Note("opaque", "fc", "a note"),),
)


def printed(renderable: RenderableType, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_report_shows_all_that_a_graph_holds() -> None:
    text = printed(report(GRAPH))
    rows = [line.split("│") for line in text.splitlines() if "│" in line]
    assert [cell.strip() for cell in rows[1][1:-1]] == [
        "1",
        "fc",
        "linear",
        "weight 4x3",
        "s0, 3",
        "0 > relu > flatten",
        "scale=0.5",
        "12",
    ]
    assert "weight (tied) 4x3" in text
    assert "parameters  12" in text
    assert "1 (0 free, 1 pinned)" in text
    assert GRAPH.fingerprint in text
    assert "note: opaque: fc: a note" in text


def test_a_name_can_neither_style_nor_steer_the_terminal() -> None:
    text = printed(report(GRAPH))
    assert "\x1b" not in text
    assert "[red]\N{REPLACEMENT CHARACTER}[2J" in text


@given(graphs())
def test_every_graph_can_be_shown(graph: Graph) -> None:
    text = printed(report(graph), width=80)
    assert f"layers      {len(graph.layers)}\n" in text
