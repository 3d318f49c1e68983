"""Windows at the edges: what a padding changes is said, and a kernel may grow together with its padding."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from modelkeeper.frontends.torch import describe as describe_torch
from modelkeeper.graph import Graph
from modelkeeper.matching import align
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.describe import describe
from modelkeeper.tracing.trace import OwnedTensor
from modelkeeper.transform import Plan, apply, make_plan

SIZE = 12
IMAGE = torch.randn(2, 3, SIZE, SIZE, dtype=torch.float64)


class Net:
    """Two convolutions and a head, padded as it is told: as a front end traces it, and to be run."""

    def __init__(
        self, padding: list[int], kernel: int = 3, stride: int = 1, width: int = 4, dilation: int = 1
    ) -> None:
        self.padding, self.stride, self.dilation = padding, stride, dilation
        generator = torch.Generator().manual_seed(0)
        shapes = {"a": (width, 3, kernel, kernel), "b": (5, width, 1, 1), "bias": (5,)}
        self.weights: dict[str, Tensor] = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in shapes.items()
        }

    def __call__(self, x: Tensor) -> Tensor:
        first, last = self.padding[:2], self.padding[-2:]
        x = functional.pad(x, (first[1], last[1], first[0], last[0]))
        x = functional.conv2d(x, self.weights["a"], stride=self.stride, dilation=self.dilation)
        return functional.conv2d(x.relu(), self.weights["b"], self.weights["bias"])

    def graph(self) -> Graph:
        build = TraceBuilder("made")
        values = {
            name: build.tensor(OwnedTensor((name,), tuple(tensor.shape), "float64"))
            for name, tensor in self.weights.items()
        }
        size = self(IMAGE).shape[-1]
        made = build.step(
            "conv2d",
            (2, len(self.weights["a"]), size, size),
            input=build.input(IMAGE.shape, "float64"),
            weight=values["a"],
            stride=[self.stride] * 2,
            padding=self.padding,
            dilation=[self.dilation] * 2,
        )
        made = build.step("relu", made.shape, self=made)
        made = build.step("conv2d", (2, 5, size, size), input=made, weight=values["b"], bias=values["bias"])
        return describe(build.trace([made]))

    def plan(self, parent: "Net") -> Plan:
        graphs = parent.graph(), self.graph()
        return make_plan(*graphs, align(*graphs))

    def take(self, parent: "Net") -> Plan:
        plan = self.plan(parent)
        for name, array in apply(plan, {name: t.numpy() for name, t in parent.weights.items()}):
            self.weights[name] = torch.from_numpy(array.copy())
        return plan


@pytest.mark.parametrize("width", [4, 7])
@pytest.mark.parametrize("padding", [[0, 0, 1, 1], [1, 0, 0, 2], [1, 1]])
def test_the_same_padding_is_exact(padding: list[int], width: int) -> None:
    parent, child = Net(padding, stride=2), Net(padding, stride=2, width=width)
    assert child.take(parent).exact
    assert torch.allclose(child(IMAGE), parent(IMAGE))


def test_another_padding_is_approximate_costs_a_little_and_is_said() -> None:
    parent, child = Net([1, 1], stride=2), Net([0, 0, 1, 1], stride=2)
    plan = child.plan(parent)
    assert not plan.exact
    assert plan.doubts == ("conv a has other attributes than in the parent: padding 1x1 became 0x0x1x1",)
    assert plan.coverage == 1
    similarity = align(parent.graph(), child.graph()).similarity
    assert 0.9 < similarity < 0.9999
    assert align(parent.graph(), parent.graph()).similarity == 1


def test_paddings_that_are_the_same_are_the_same_architecture() -> None:
    assert Net([1, 1]).graph().fingerprint == Net([1, 1, 1, 1]).graph().fingerprint
    assert Net([1, 1]).graph().fingerprint != Net([0, 0, 1, 1]).graph().fingerprint


@pytest.mark.parametrize(
    ("old", "new", "exact"),
    [
        ((3, [1, 1]), (5, [2, 2]), True),
        ((3, [0, 0, 1, 1]), (5, [1, 1, 2, 2]), True),
        ((3, [0, 1, 1, 1]), (5, [1, 2, 2, 2]), True),
        ((2, [0, 0, 1, 1]), (5, [1, 1, 3, 3]), True),
        ((3, [1, 1]), (4, [1, 1, 2, 2]), True),
        ((3, [1, 1]), (4, [2, 2, 1, 1]), False),
        ((3, [0, 0, 1, 1]), (5, [2, 2, 1, 1]), False),
        ((3, [0, 0, 1, 1]), (5, [1, 1]), False),
        ((5, [2, 2]), (3, [1, 1]), False),
    ],
)
def test_a_kernel_grows_together_with_its_padding(old: Any, new: Any, exact: bool) -> None:
    parent, child = Net(old[1], old[0], stride=2), Net(new[1], new[0], stride=2)
    assert child.take(parent).exact == exact
    if exact:
        assert torch.allclose(child(IMAGE), parent(IMAGE))


paddings = st.lists(st.integers(0, 3), min_size=4, max_size=4) | st.lists(
    st.integers(0, 3), min_size=2, max_size=2
)


@given(paddings, paddings, st.integers(1, 5), st.integers(1, 5), st.integers(1, 2), st.integers(4, 6))
def test_what_is_called_exact_is(
    theirs: list[int], ours: list[int], kernel: int, larger: int, stride: int, width: int
) -> None:
    parent, child = Net(theirs, kernel, stride), Net(ours, larger, stride, width)
    plan = child.take(parent)
    same = parent(IMAGE).shape == child(IMAGE).shape and torch.allclose(parent(IMAGE), child(IMAGE))
    assert not plan.exact or same
    if (theirs, kernel) == (ours, larger):
        assert plan.exact


@pytest.mark.parametrize(
    ("layer", "exact"),
    [
        (nn.Conv2d(8, 8, 3, padding=1), True),
        (nn.Conv2d(8, 8, 1), True),
        (nn.Conv2d(8, 8, 3, padding=2, dilation=2), True),
        (nn.Conv2d(8, 8, (1, 3), padding=(0, 1)), True),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), True),
        (nn.Conv2d(8, 8, 3), False),
        (nn.Conv2d(8, 8, 3, padding=2), False),
        (nn.Conv2d(8, 8, 1, padding=1), False),
        (nn.Conv2d(8, 8, 3, padding=1, stride=2), False),
        (nn.Conv2d(8, 8, 3, padding=1, dilation=2), False),
    ],
)
def test_a_new_convolution_is_the_identity_if_it_keeps_every_place(layer: nn.Module, exact: bool) -> None:
    def net(*between: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *between, nn.Conv2d(8, 4, 3))

    torch.manual_seed(0)
    parent, child, image = net().double(), net(layer).double(), torch.randn(1, 3, 9, 9, dtype=torch.float64)
    graphs = describe_torch(parent, image), describe_torch(child, image)
    plan = make_plan(*graphs, [(0, 0), (1, 1), (2, 3), (3, 4)])
    assert plan.exact == exact, plan.doubts
    if exact:
        weights = {name: tensor.numpy() for name, tensor in parent.state_dict().items()}
        made = {name: torch.from_numpy(array.copy()) for name, array in apply(plan, weights)}
        child.load_state_dict(made)
        assert torch.allclose(child(image), parent(image))
    else:
        assert any("does not keep every place" in doubt for doubt in plan.doubts)
