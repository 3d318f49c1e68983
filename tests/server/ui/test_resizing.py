"""Sliders of a model: what they offer is what can be had, and nothing beyond."""

import pytest

from modelkeeper.errors import InvalidMeta
from modelkeeper.frontends.torch import describe
from modelkeeper.graph.repeats import stages
from modelkeeper.server.ui.resizing import WIDEST, read_sizes, resized, sliders
from tests.helpers.families import FAMILIES, INPUTS
from tests.helpers.generated import vgg

GRAPH = describe(FAMILIES["grouped"](8, 3), INPUTS["grouped"])


def test_sliders_offer_what_can_be_had() -> None:
    can = sliders(GRAPH)
    assert [(each.count, each.period) for each in can.blocks] == [(s.count, s.period) for s in stages(GRAPH)]
    assert can.blocks
    assert can.widths
    assert can.fixed  # what inputs and outputs decide, with the reason
    assert all(each.why and each.layer for each in can.fixed)
    most = [each.most for each in can.blocks]
    deepest = resized(GRAPH, 1.0, most)
    added = sum((each.most - each.count) * each.period for each in can.blocks)
    assert len(deepest.layers) == len(GRAPH.layers) + added
    assert resized(GRAPH, WIDEST, ()).parameters > 4 * GRAPH.parameters
    assert resized(GRAPH, 1.0, [each.count for each in can.blocks]) is GRAPH


def test_a_model_without_repeats_has_no_depth_to_change() -> None:
    assert sliders(vgg((8, 16, 24))).blocks == ()


@pytest.mark.parametrize("width", [0.0, -1.0, 4.1, float("nan"), float("inf")])
def test_no_slider_goes_beyond_its_ends(width: float) -> None:
    with pytest.raises(InvalidMeta, match="width"):
        resized(GRAPH, width, ())


@pytest.mark.parametrize("blocks", [(0,), (10**9,), (1,) * 99])
def test_blocks_are_as_many_as_a_slider_says(blocks: tuple[int, ...]) -> None:
    with pytest.raises(InvalidMeta, match="blocks"):
        resized(GRAPH, 1.0, blocks)


def test_sizes_are_read_from_an_address() -> None:
    assert read_sizes("1.5", ["6,4"]) == read_sizes(" 1.5 ", ["6", "4"]) == (1.5, (6, 4))
    assert read_sizes("", []) == (1.0, ())
    for width, blocks in (("wide", "1"), ("1", "many"), ("1", "1.5")):
        with pytest.raises(InvalidMeta):
            read_sizes(width, [blocks])
