"""Other widths and depths of a graph: as the model would be if built so, and nothing fixed changes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Atom, Graph, from_json, leaves, to_json, walk
from modelkeeper.graph.repeats import stages
from modelkeeper.graph.resize import changeable, resize, unchangeable, with_sizes
from modelkeeper.matching import align
from tests.helpers.generated import vgg
from tests.helpers.strategies import graphs

factors = st.sampled_from([0.25, 0.5, 0.75, 1.25, 1.5, 2.0, 3.0])


@given(graphs(), factors)
def test_widths_that_are_not_free_stay(graph: Graph, factor: float) -> None:
    """Law: the same layers, wired alike; only free spaces change; an axis of one space by just the factor."""
    wider = resize(graph, width=factor)
    assert [(layer.name, layer.kind, layer.inputs) for layer in wider.layers] == [
        (layer.name, layer.kind, layer.inputs) for layer in graph.layers
    ]
    may = changeable(graph)
    for number, (before, after) in enumerate(zip(graph.spaces, wider.spaces, strict=True)):
        assert before.pins == after.pins
        if before.pins or number not in may:
            assert after.size == before.size
        else:
            assert after.size == max(2, math.floor(before.size * factor + 0.5))
    for (_, _, before_axis), (_, _, after_axis) in zip(walk(graph), walk(wider), strict=True):
        changed = [leaf for leaf in leaves(before_axis.of) if isinstance(leaf, Atom) and leaf.space in may]
        if not changed:
            assert after_axis.size == before_axis.size
    told = {(one.layer, one.size) for one in unchangeable(graph)}
    assert len(told) <= sum(number not in may for number in range(len(graph.spaces)))
    assert align(graph, wider).similarity > 0


@given(graphs())
def test_nothing_changes_by_a_factor_of_one(graph: Graph) -> None:
    """Law: the factor one, and as many blocks as there are, give the same graph."""
    same = resize(graph, width=1.0, blocks=[stage.count for stage in stages(graph)])
    assert same.fingerprint == graph.fingerprint
    assert same == graph


def test_what_is_asked_for_must_be_there() -> None:
    graph = vgg((8, 8, 8, 8))
    with pytest.raises(ValueError, match="at least one block, not 0"):
        resize(graph, blocks=[0])
    with pytest.raises(ValueError, match="2 numbers of blocks for 1 stages"):
        resize(graph, blocks=[1, 1])
    assert with_sizes(graph, {}) == graph
    assert changeable(graph) == frozenset()  # it was described without spaces


# -- against models that are really wider and deeper -------------------------------------------------------


@pytest.mark.parametrize(
    "family", ["chain", "dense", "concat", "excite", "grouped", "depthwise", "attention", "tied"]
)
def test_a_wider_graph_is_that_of_the_wider_model(family: str) -> None:
    from modelkeeper.frontends.torch import describe
    from tests.helpers.families import FAMILIES, INPUTS

    narrow, wide = (describe(FAMILIES[family](width, 3), INPUTS[family]) for width in (8, 16))
    assert resize(narrow, width=2).fingerprint == wide.fingerprint
    assert resize(wide, width=0.5).fingerprint == narrow.fingerprint
    if family != "dense":  # every layer of which reads more than the one before
        (stage,) = stages(narrow)
        assert stage.count == 3
        for count in (1, 5):
            deeper = describe(FAMILIES[family](16, count), INPUTS[family])
            made = resize(narrow, width=2, blocks=[count])
            assert made.fingerprint == deeper.fingerprint
            assert len(made.spaces) == len(deeper.spaces)
            assert from_json(to_json(made)) == made


def test_a_real_network_of_another_depth() -> None:
    """Stages of two widths and more, whose first blocks are unlike the others."""
    import torch
    from pytorchcv.model_provider import get_model

    from modelkeeper.frontends.torch import describe

    short, long = (
        describe(get_model(f"{name}_cifar10"), torch.zeros(1, 3, 32, 32)) for name in ("resnet20", "resnet56")
    )
    assert [stage.count for stage in stages(short)] == [3, 2, 2]
    assert resize(short, blocks=[9, 8, 8]).fingerprint == long.fingerprint
    assert resize(long, blocks=[3, 2, 2]).fingerprint == short.fingerprint
    assert [one.why for one in unchangeable(short)] == ["output"]


def test_groups_follow_the_width() -> None:
    """Depthwise: as many groups as units; grouped: as many as before; heads of a fixed size become more."""
    from modelkeeper.frontends.torch import describe
    from tests.helpers.families import FAMILIES, INPUTS

    def groups(family: str) -> list[object]:
        graph = resize(describe(FAMILIES[family](8, 1), INPUTS[family]), width=1.5)
        return [layer.attributes["groups"] for layer in graph.layers if "groups" in layer.attributes]

    assert groups("depthwise") == [24]
    assert groups("more groups") == [2]
    graph = describe(FAMILIES["attention"](8, 1), INPUTS["attention"])
    qkv = next(layer for layer in resize(graph, width=1.5).layers if layer.name.endswith("qkv"))
    assert str(qkv.tensors[0].axes[0].of).count("x") == 2
    assert qkv.tensors[0].shape == (3 * 3 * 4, 12)  # three heads of four units
