"""Strides, paddings and dilations: one way to write them, however they were given."""

from typing import Any

import pytest
import torch
from torch import nn

from modelkeeper.frontends.torch import describe as describe_torch
from modelkeeper.graph import Layer
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.describe import describe
from modelkeeper.tracing.trace import OwnedTensor


def convolution(kernel: tuple[int, ...] = (3, 3), **arguments: Any) -> Layer:
    """A convolution over a picture, as a front end writes it, as a layer."""
    build = TraceBuilder("made")
    image = build.input((1, 3, *(16 for _ in kernel)))
    weight = build.tensor(OwnedTensor(("conv.kernel",), (8, 3, *kernel), "float32"))
    name = f"conv{len(kernel)}d"
    made = build.step(name, (1, 8, *(16 for _ in kernel)), input=image, weight=weight, **arguments)
    return describe(build.trace([made])).layers[1]


def pooling(name: str, shape: tuple[int, ...] = (1, 3, 8, 8), **arguments: Any) -> str:
    """A pooling, as it is written on an edge."""
    build = TraceBuilder("made")
    made = build.step(name, shape, self=build.input((1, 3, *(16 for _ in shape[2:]))), **arguments)
    return describe(build.trace([made])).layers[1].inputs[0].via[0]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (1, (1, 1)),
        ([1], (1, 1)),
        ([1, 2], (1, 2)),
        ([1, 1, 1, 1], (1, 1)),
        ([1, 2, 1, 2], (1, 2)),
        ([0, 0, 1, 1], (0, 0, 1, 1)),
        ("same", (1, 1)),
        ([0, 0, 0, 0], None),
        ([0, 0], None),
        (0, None),
        ("valid", None),
    ],
)
def test_a_padding_is_written_in_one_way(given: Any, written: tuple[int, ...] | None) -> None:
    assert convolution(padding=given).attributes.get("padding") == written


def test_a_padding_in_words_is_what_the_framework_does() -> None:
    """The odd one out goes to the end, as PyTorch puts it there."""
    assert convolution((4, 3), padding="same").attributes["padding"] == (1, 1, 2, 1)
    assert convolution((3, 3), padding="same", dilation=[2, 2]).attributes["padding"] == (2, 2)
    assert convolution((2,), padding="same").attributes["padding"] == (0, 1)
    weight, image = torch.randn(1, 1, 4, dtype=torch.float64), torch.randn(1, 1, 9, dtype=torch.float64)
    by_hand = nn.functional.conv1d(nn.functional.pad(image, (1, 2)), weight)
    with pytest.warns(UserWarning, match="padding='same' with even kernel lengths"):
        by_word = nn.functional.conv1d(image, weight, padding="same")
    assert torch.allclose(by_hand, by_word)


@pytest.mark.parametrize("padding", [1, "same"])
def test_pytorch_writes_words_and_numbers_alike(padding: Any) -> None:
    graph = describe_torch(nn.Sequential(nn.Conv2d(3, 8, 3, padding=padding)), torch.zeros(1, 3, 8, 8))
    assert graph.layers[1].attributes == {"padding": (1, 1)}


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("max_pool2d[2x2,2x2]", {"kernel_size": [2, 2]}),
        ("max_pool2d[2x2,2x2]", {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]}),
        ("max_pool2d[2x2,2x2]", {"kernel_size": 2, "stride": [], "dilation": [1, 1], "ceil_mode": False}),
        ("max_pool2d[3x3,2x2,1x1]", {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1, 1, 1]}),
        ("max_pool2d[3x3,2x2,0x0x1x1]", {"kernel_size": [3, 3], "stride": 2, "padding": [0, 0, 1, 1]}),
        ("max_pool2d[3x3,2x2,0x0,1x1,yes]", {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
        ("max_pool2d[2x2,2x2,0x0,2x2]", {"kernel_size": 2, "dilation": 2}),
    ],
)
def test_a_pooling_is_written_in_one_way(written: str, arguments: dict[str, Any]) -> None:
    assert pooling("max_pool2d", **arguments) == written


def test_an_average_says_whether_it_counts_what_was_added_at_the_edges() -> None:
    counts = pooling("avg_pool2d", kernel_size=[3, 3], stride=[2, 2], padding=[1, 1])
    not_counts = pooling(
        "avg_pool2d", kernel_size=[3, 3], stride=[2, 2], padding=[1, 1], count_include_pad=False
    )
    assert counts == "avg_pool2d[3x3,2x2,1x1]"
    assert not_counts == "avg_pool2d[3x3,2x2,1x1,inside]"
    without = pooling("avg_pool2d", kernel_size=[2, 2], count_include_pad=False)
    assert without == pooling("avg_pool2d", kernel_size=[2, 2])
    assert pooling("avg_pool1d", (1, 3, 8), kernel_size=[2]) == "avg_pool1d[2,2]"


@pytest.mark.parametrize(
    ("module", "written"),
    [
        (nn.ReLU6(), "relu6"),
        (nn.Hardtanh(0, 6), "relu6"),
        (nn.Hardtanh(0, 1), "hardtanh[0.0]"),
        (nn.Hardtanh(), "hardtanh"),
        (nn.Hardtanh(-1, 1), "hardtanh"),
        (nn.Hardtanh(-2, 1), "hardtanh[-2.0]"),
        (nn.Hardtanh(max_val=2), "hardtanh[-1.0,2.0]"),
        (nn.ELU(), "elu"),
        (nn.ELU(alpha=0.5), "elu[0.5]"),
        (nn.LeakyReLU(0.3), "leaky_relu[0.3]"),
        (nn.MaxPool2d(2), "max_pool2d[2x2,2x2]"),
        (nn.MaxPool2d(3, 2, 1), "max_pool2d[3x3,2x2,1x1]"),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), "avg_pool2d[3x3,2x2,1x1,inside]"),
        (nn.AvgPool2d(3, 2, 1, ceil_mode=True), "avg_pool2d[3x3,2x2,1x1,yes]"),
    ],
)
def test_what_pytorch_does_is_written_likewise(module: nn.Module, written: str) -> None:
    graph = describe_torch(nn.Sequential(nn.Conv2d(3, 8, 3), module), torch.zeros(1, 3, 16, 16))
    assert graph.layers[2].inputs[0].via == (written,)
