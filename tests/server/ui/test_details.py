"""What is told of one layer and of one space: as the plan has it, axis by axis."""

import pytest

from modelkeeper.errors import InvalidMeta
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.server.comparisons import Comparison, compare
from modelkeeper.server.ui import details
from modelkeeper.transform.pairing import spaces_of
from tests.helpers.families import FAMILIES, INPUTS
from tests.helpers.generated import vgg


def network(family: str, width: int, depth: int) -> Graph:
    return describe(FAMILIES[family](width, depth), INPUTS[family])


@pytest.fixture(scope="module", params=["residual", "dense", "attention", "tied"])
def found(request: pytest.FixtureRequest) -> Comparison:
    small, large = network(request.param, 8, 2), network(request.param, 16, 3)
    return compare(small, large, same_task=True, seconds=60)


def test_tensors_are_told_as_the_plan_has_them(found: Comparison) -> None:
    assert found.plan is not None
    told = {}
    for row in range(len(found.rows)):
        for tensor in details.layer(found, row)["tensors"]:
            told[tensor["name"]] = tensor
    own = {name: tensor for name, tensor in told.items() if tensor["action"] != "skipped"}
    assert {entry.tensor: entry.action for entry in found.plan.entries}.items() <= {
        name: tensor["action"] for name, tensor in own.items()
    }.items()
    for entry in found.plan.entries:
        tensor = own[entry.tensor]
        assert (tensor["exact"], tensor["why"]) == (entry.exact, entry.why)
        assert len(tensor["axes"]) == len(found.child.tensors[entry.tensor].axes)
        actions = {axis["action"] for axis in tensor["axes"]}
        if entry.action in ("copied", "widened", "narrowed"):
            assert actions <= {"copied", entry.action}
            assert entry.action in actions or not actions
        for axis in tensor["axes"]:
            lent, size = axis["sizes"]
            if axis["action"] == "widened" and lent is not None:
                assert lent < size


def test_a_wider_axis_says_from_what_to_what() -> None:
    found = compare(network("residual", 8, 1), network("residual", 16, 1), same_task=True, seconds=60)
    stem = next(
        n
        for n, row in enumerate(found.rows)
        if row.child is not None and found.child.layers[row.child].kind == "conv"
    )
    tensor = details.layer(found, stem)["tensors"][0]
    assert tensor["shapes"] == ["8×3×3×3", "16×3×3×3"]
    assert [(axis["role"], axis["sizes"], axis["action"]) for axis in tensor["axes"]][:2] == [
        ("out", [8, 16], "widened"),
        ("in", [3, 3], "copied"),
    ]


def test_a_kernel_that_grows_with_its_padding_is_exact() -> None:
    from torch import nn

    small, large = (
        describe(
            nn.Sequential(nn.Conv2d(3, 4, k, padding=k // 2), nn.ReLU(), nn.Conv2d(4, 4, 1)), INPUTS["chain"]
        )
        for k in (1, 3)
    )
    found = compare(small, large, same_task=True, seconds=60)
    said = details.layer(found, 1)["tensors"][0]
    assert said["exact"]
    kernels = [axis for axis in said["axes"] if axis["role"] == "kernel"]
    assert {(tuple(axis["sizes"]), axis["exact"]) for axis in kernels} == {((1, 3), True)}


def test_a_space_has_every_layer_with_an_axis_of_it(found: Comparison) -> None:
    for number, space in enumerate(found.child.spaces):
        said = details.space(found, "child", number)
        layers = [found.child.layers[found.rows[row].child or 0] for row in said["rows"]]
        assert {layer.name for layer in layers} == {
            layer.name
            for layer in found.child.layers
            if any(number in spaces_of(axis.of) for tensor in layer.tensors for axis in tensor.axes)
        }
        assert [layer["name"] for layer in said["layers"]] == [layer.name for layer in layers]
        assert said["size"] == space.size
        assert {str(pin) for pin in space.pins} <= set(said["pins"])
        assert said["averaged"] or not space.averaged
    assert any(details.space(found, "child", n)["lender"] for n in range(len(found.child.spaces)))


def test_what_only_the_lender_has_is_told() -> None:
    found = compare(network("residual", 8, 3), network("residual", 8, 1), same_task=True, seconds=60)
    row = next(
        n
        for n, each in enumerate(found.rows)
        if each.child is None and each.parent is not None and found.parent.layers[each.parent].tensors
    )
    said = details.layer(found, row)
    assert said["child"] is None
    assert {tensor["action"] for tensor in said["tensors"]} == {"skipped"}
    spaces = [space for axis in said["tensors"][0]["axes"] for space in axis["spaces"]]
    assert row in details.space(found, "parent", spaces[0])["rows"]


def test_without_a_plan_shapes_are_told() -> None:
    found = compare(vgg((8,) * 40), vgg((16,) * 40), same_task=True, seconds=-1)
    said = details.layer(found, 1)
    assert [tensor["action"] for tensor in said["tensors"]] == [""]
    assert said["tensors"][0]["shapes"] == [None, "16×3×3×3"]


@pytest.mark.parametrize("row", [-1, 10**6])
def test_what_is_not_there_is_refused(row: int) -> None:
    found = compare(vgg((8,)), vgg((8,)), same_task=True, seconds=60)
    with pytest.raises(InvalidMeta, match="row"):
        details.layer(found, row)
    with pytest.raises(InvalidMeta, match="space"):
        details.space(found, "child", row)
