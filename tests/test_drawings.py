"""Pictures: well-formed whatever names and numbers are in them, with what they are said to show."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.drawings import COLOURS, Box, Picture, TreeRow, Wire, lines, links, rows, table
from modelkeeper.errors import InvalidMeta
from modelkeeper.matching import align
from modelkeeper.policy.curves import Curve, Point
from modelkeeper.transform import make_plan
from tests.helpers import zoos
from tests.helpers.dashboards import HOSTILE, renamed
from tests.helpers.generated import vgg

SVG = "{http://www.w3.org/2000/svg}"
numbers = st.floats(-1e6, 1e6)


def read(drawing: Picture) -> ElementTree.Element:
    """Its elements: nothing in them but shapes and text, nothing that runs or is fetched."""
    root = ElementTree.fromstring(drawing.svg)
    for each in root.iter():
        assert each.tag.removeprefix(SVG) in {
            *("svg", "g", "title", "text", "tspan", "rect", "path", "line", "polyline", "circle"),
        }
        assert not [name for name in each.attrib if name.startswith("on") or "href" in name]
    return root


def words(root: ElementTree.Element) -> str:
    return " ".join(root.itertext())


@given(st.dictionaries(st.text(max_size=20), st.lists(st.tuples(numbers, numbers), max_size=6), max_size=4))
def test_curves_of_any_names_and_numbers_are_well_formed(
    curves: dict[str, list[tuple[float, float]]],
) -> None:
    root = read(lines(curves, "step", "score"))
    assert len(list(root.iter(f"{SVG}polyline"))) == sum(map(bool, curves.values()))
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for line in root.iter(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_values_that_no_round_number_lies_between_are_drawn() -> None:
    """The smallest numbers there are: their difference by five is zero."""
    curve = read(lines({"a": [(0.0, 5e-324), (5e-324, 1e-323)]}, "step", "score"))
    [line] = curve.iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 2


@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_names_are_text_and_nothing_else(names: list[str]) -> None:
    boxes = [Box(name, name) for name in names]
    read(links(("a", "b"), boxes, boxes, [Wire(0, 0)], "said"))
    read(rows([TreeRow(number % 3, name, name) for number, name in enumerate(names)], "said"))
    for name in (*names, *HOSTILE):
        assert not re.search(r"<(?!/?(table|caption|thead|tbody|tr|th|td)\b)", table(("a",), [(name,)], name))


def test_a_plan_shows_who_lends_to_whom(tmp_path: Path) -> None:
    parent, child = vgg((8, 8)), renamed(vgg((8, 16, 16)))
    plan = make_plan(parent, child, align(parent, child))
    saved = plan.plot().save(tmp_path / "pictures" / "plan.svg")
    root = read(Picture(saved.read_text()))
    boxes = list(root.iter(f"{SVG}rect"))
    owners = [layer for graph in (parent, child) for layer in graph.layers if layer.tensors]
    assert len(boxes) == len(owners)
    lenders = {entry.layer for entry in plan.entries if entry.source}
    assert len(list(root.iter(f"{SVG}path"))) >= len(lenders) > 0
    for action in plan.summary():
        assert COLOURS[action] in {box.attrib["fill"] for box in boxes}
    assert plan.verdict() in words(root)
    assert all(action in plan._repr_html_() for action in plan.summary())


def test_a_thousand_layers_are_an_overview() -> None:
    parent = vgg((4,) * 500)
    plan = make_plan(parent, parent, align(parent, parent))
    root = read(plan.plot())
    assert float(root.attrib["height"]) < 2000
    assert not [text for text in root.iter(f"{SVG}text") if text.text and "conv" in text.text]


def test_a_curve_is_drawn_beside_others() -> None:
    warm = Curve(metric="accuracy", points=(Point(1, 0.5, 0.7), Point(2, 1.0, 0.9)))
    cold = Curve(metric="accuracy", points=(Point(1, 0.5, 0.1), Point(4, 2.0, 0.8)))
    root = read(warm.plot({"cold": cold}, by="seconds", name="warm"))
    first, second = root.iter(f"{SVG}polyline")
    assert "stroke-dasharray" in second.attrib
    assert "stroke-dasharray" not in first.attrib
    assert {"warm", "cold", "seconds", "accuracy"} <= set(words(root).split())
    assert warm._repr_svg_().count("<polyline") == 1
    with pytest.raises(InvalidMeta, match="step or seconds"):
        warm.plot(by="epochs")


def test_graphs_alignments_and_records_are_tables_in_a_notebook() -> None:
    parent, child = vgg((8, 8)), renamed(vgg((8, 16)))
    assert "<script" not in child._repr_html_()
    assert parent.fingerprint[:16] in parent._repr_html_()
    assert parent._repr_html_().count("<tr>") == 1 + len(parent.layers)
    assert f"similarity {align(parent, child).similarity:.3f}" in align(parent, child)._repr_html_()
    long = vgg((4,) * 300)
    assert f"and {len(long.layers) - 200:,} more" in long._repr_html_()


def test_a_record_is_a_table_and_its_family_a_picture(tmp_path: Path) -> None:
    from modelkeeper.coordinator.local import LocalCoordinator
    from modelkeeper.settings import Settings

    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    record = zoos.register(coordinator, vgg((8, 8)), "<b>bold</b>", 0.5)
    shown = record._repr_html_()
    assert "&lt;b&gt;bold" in shown
    assert "<b>" not in shown
    assert record.id in shown
    child = zoos.register(coordinator, vgg((8, 16)), "child", 0.6, parent=record.id)
    zoos.register(coordinator, vgg((8, 32)), "grandchild", 0.7, parent=child.id)
    tree = coordinator.tree(child.id)
    root = read(Picture(tree._repr_svg_()))
    assert len(list(root.iter(f"{SVG}circle"))) == 3
    said = words(root)
    assert said.index("bold") < said.index("/child") < said.index("grandchild")
    assert "and 2 relatives" in root.attrib["aria-label"]
    coordinator.close()
