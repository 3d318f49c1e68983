"""Is anything called exact that is not? Pairs of PyTorch models that differ in what weights do not show."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from modelkeeper import transfer
from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.behaviour import difference

Function = Callable[[Tensor], Tensor]


class Applied(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 5, 1), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


def resized(corners: bool) -> Function:
    return lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners)


def windows(size: int) -> Function:
    """The largest number in each window, added up."""

    def grouped(x: Tensor) -> Tensor:
        batch, width, height, length = x.shape
        parts = x.view(batch, width, height // size, size, length // size, size)
        return parts.amax((3, 5)).sum((2, 3))[..., None, None]

    return grouped


PAIRS: dict[str, tuple[Function, Function]] = {
    "corners": (resized(True), resized(False)),
    "how much larger": (
        lambda x: functional.interpolate(x, scale_factor=2).sum((2, 3), keepdim=True),
        lambda x: functional.interpolate(x, scale_factor=3).sum((2, 3), keepdim=True),
    ),
    "windows": (windows(2), windows(3)),
    "at least, at most": (lambda x: x.clamp(min=0.2), lambda x: x.clamp(max=0.2)),
    "largest, smallest": (lambda x: x.topk(3, 2)[0], lambda x: x.topk(3, 2, largest=False)[0]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_is_not_promised_and_what_is_the_same_is(name: str) -> None:
    one, other = PAIRS[name]
    images = torch.randn(1, 3, 6, 6)
    assert not transfer(Applied(one), Applied(other), images).exact
    assert not transfer(Applied(other), Applied(one), images).exact
    assert transfer(Applied(one), Applied(one), images).exact


class Computed(nn.Module):
    """A linear layer or a convolution whose weight is computed of its parameter, as `kind` says."""

    def __init__(self, taken: int, made: int, kind: str, window: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(made, taken, *(window,) * (2 if window else 0)) / 2)
        self.bias = nn.Parameter(torch.randn(made))
        self.kind, self.factor = kind, float(taken) ** -0.5  # of the fan-in, as equalised layers have it
        self.number = torch.tensor(self.factor)
        self.register_buffer("stored", torch.tensor(self.factor))
        self.register_buffer("unstored", torch.tensor(self.factor), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        weight = COMPUTED[self.kind](self)
        if self.weight.ndim == 2:
            return functional.linear(x, weight, self.bias)
        return functional.conv2d(x, weight, self.bias, padding="same")


COMPUTED: dict[str, Callable[[Any], Tensor]] = {
    "plain": lambda layer: layer.weight,
    "times a number": lambda layer: layer.weight * layer.factor,
    "by a number": lambda layer: layer.weight / layer.factor,
    "times a constant": lambda layer: layer.weight * layer.number,
    "times a buffer": lambda layer: layer.weight * layer.stored,
    "times a buffer that is not stored": lambda layer: layer.weight * layer.unstored,
    "twice": lambda layer: layer.weight * 2,
    "moved": lambda layer: layer.weight.flip(-1) * 0.5,
    "plus one": lambda layer: layer.weight + 1,
    "softplus": lambda layer: functional.softplus(layer.weight),
    "squared": lambda layer: layer.weight * layer.weight,
    "standardised": lambda layer: (
        (layer.weight - layer.weight.mean()) / (layer.weight.std(correction=0) + 1e-3)
    ),
}


def computed(widths: Sequence[int], kinds: Sequence[str], window: int = 0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for taken, made, kind in zip([3, *widths], [*widths, 5], kinds, strict=True):
        layers += [Computed(taken, made, kind, window), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).double()


def check_promise(parent: nn.Module, child: nn.Module, inputs: Tensor) -> bool:
    """Is the start called exact? Then it has to be."""
    exact = transfer(parent, child, inputs).exact
    if exact:
        assert difference(parent, child, inputs) < 1e-6
    return exact


@pytest.mark.parametrize(
    ("kind", "window"), [*((kind, 0) for kind in COMPUTED), ("times a number", 3), ("times a constant", 3)]
)
def test_what_is_done_to_a_weight_on_its_way_is_looked_at(kind: str, window: int) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(2, 3, *(6,) * (2 if window else 0), dtype=torch.float64)
    parent = computed((16, 16), [kind] * 3, window)
    assert check_promise(parent, computed((16, 16), [kind] * 3, window), inputs)
    assert not check_promise(parent, computed((24, 16), [kind] * 3, window), inputs) or kind in (
        "plain",
        "twice",
        "moved",
        "times a buffer",
    )
    for other in {"plain", "times a number", "times a constant"} - {kind}:
        assert not check_promise(parent, computed((16, 16), [other] * 3, window), inputs), other


@settings(max_examples=25)
@given(st.data())
def test_no_network_of_computed_weights_is_promised_in_vain(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 3))
    kinds = data.draw(st.lists(st.sampled_from([*COMPUTED]), min_size=depth + 1, max_size=depth + 1))
    widths = st.lists(st.sampled_from([4, 6, 8]), min_size=depth, max_size=depth)
    torch.manual_seed(data.draw(st.integers(0, 9)))
    inputs = torch.randn(3, 3, dtype=torch.float64)
    first, second = data.draw(widths), data.draw(widths)
    exact = check_promise(computed(first, kinds), computed(second, kinds), inputs)
    assert exact or first != second
    others = [data.draw(st.sampled_from([*COMPUTED])) if data.draw(st.booleans()) else kind for kind in kinds]
    check_promise(computed(first, kinds), computed(second, others), inputs)


class Doubled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.factor


def test_a_parametrization_that_multiplies_is_looked_at() -> None:
    def made(width: int, factor: float) -> nn.Module:
        net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 5))
        parametrize.register_parametrization(net[0], "weight", Doubled(factor))
        return net

    inputs = torch.randn(2, 3)
    assert check_promise(made(8, 2.0), made(8, 2.0), inputs)
    assert check_promise(made(8, 2.0), made(12, 2.0), inputs)
    assert not check_promise(made(8, 2.0), made(8, 3.0), inputs)
    assert not check_promise(made(8, 2.0), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 5)), inputs)


class Gained(nn.Module):
    """Multiplies by a gain, and adds positions, of which something is computed first."""

    def __init__(self, offset: float, factor: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 5)
        self.gain, self.place = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(2, 8))
        self.offset, self.factor = offset, factor

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) * (self.gain + self.offset)
        return self.last(torch.tanh(y + functional.relu(self.place) * self.factor))


def test_what_is_done_to_gains_and_bare_parameters_is_looked_at() -> None:
    inputs = torch.randn(2, 3)
    assert check_promise(Gained(1.0, 0.5), Gained(1.0, 0.5), inputs)
    assert not check_promise(Gained(1.0, 0.5), Gained(2.0, 0.5), inputs)
    assert not check_promise(Gained(1.0, 0.5), Gained(1.0, 0.25), inputs)


class InCode(nn.Module):
    """Does something with numbers that only its code has."""

    def __init__(self, function: Function, width: int = 8) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(4, width), nn.Linear(width, 5), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.function(self.first(x))))


TABLE = torch.rand(6, 1)
MASK = torch.ones(6, 6).tril().bool()


def attend(mask: Tensor | None) -> Function:
    return lambda x: functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def cut(x: Tensor, sizes: list[int]) -> Tensor:
    first, rest = x.split(sizes, 1)
    return first.amax(1) + rest.sum(1)


IN_CODE: dict[str, tuple[Function, Function]] = {
    "masks": (attend(MASK), attend(None)),
    "other masks": (attend(MASK), attend(MASK.T.contiguous())),
    "masks made in the code": (
        lambda x: attend(torch.ones(6, 6).tril().bool())(x),
        lambda x: attend(torch.ones(6, 6).triu().bool())(x),
    ),
    "counts": (
        lambda x: x + torch.arange(6.0)[:, None],
        lambda x: x + 2 * torch.arange(6.0)[:, None],
    ),
    "whole counts": (lambda x: x + torch.arange(6)[:, None], lambda x: x + torch.arange(1, 7)[:, None]),
    "indices": (lambda x: x[:, [0, 2]], lambda x: x[:, [1, 3]]),
    "tables": (lambda x: x * TABLE, lambda x: x * (TABLE + 1)),
    "how often places are repeated": (
        lambda x: x.repeat(1, 2, 1).sum(1),
        lambda x: x.repeat(1, 3, 1).sum(1),
    ),
    "how often one place is expanded": (
        lambda x: x.amax(1, keepdim=True).expand(-1, 6, -1).sum(1),
        lambda x: x.amax(1, keepdim=True).expand(-1, 3, -1).sum(1),
    ),
    "where places are cut": (lambda x: cut(x, [1, 5]), lambda x: cut(x, [2, 4])),
    "how many places are picked": (lambda x: x[:, [0, 1]].sum(1), lambda x: x[:, [0, 1, 2]].sum(1)),
    "groups of places": (
        lambda x: x.view(len(x), 2, 3, -1).amax(1).sum(1),
        lambda x: x.view(len(x), 3, 2, -1).amax(1).sum(1),
    ),
    "how many places a constant adds": (
        lambda x: torch.cat([x, torch.ones(len(x), 2, x.shape[2])], 1).sum(1),
        lambda x: torch.cat([x, torch.ones(len(x), 3, x.shape[2])], 1).sum(1),
    ),
    "how many places of a constant there are": (
        lambda x: x.sum(1) + torch.ones(4, 1).sum(0),
        lambda x: x.sum(1) + torch.ones(5, 1).sum(0),
    ),
    "what is behind the point": (lambda x: (9 * x).long().float(), lambda x: 9 * x),
    "zero or not": (lambda x: x.relu().bool().float(), lambda x: x.relu()),
    "how many, or whether any": (lambda x: (x > 0).sum(1).bool().float(), lambda x: (x > 0).sum(1).float()),
}


@pytest.mark.parametrize("name", IN_CODE)
def test_numbers_in_the_code_are_compared(name: str) -> None:
    one, other = IN_CODE[name]
    inputs = torch.randn(2, 6, 4)
    assert not check_promise(InCode(one), InCode(other), inputs)
    assert not check_promise(InCode(other), InCode(one), inputs)
    assert check_promise(InCode(one), InCode(one), inputs)


def test_a_count_is_the_same_however_long_and_so_are_zeros() -> None:
    def counted(x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[1])[:, None] + torch.zeros(x.shape[-1])

    parent, child = InCode(counted), InCode(counted, 12)
    assert transfer(parent, child, torch.randn(2, 6, 4)).exact
    graphs = [describe(parent, torch.randn(2, length, 4)) for length in (6, 9)]
    assert graphs[0].notes == graphs[1].notes


def test_counts_that_follow_from_the_input_are_the_same_for_any_input() -> None:
    def followed(x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        first = x[:1, :1].repeat(batch, length, 1)
        once, rest = x.split([1, length - 1], 1)
        return (
            first.sum(1) + x.mean(1, keepdim=True).expand(batch, length, -1).sum(1) + once[:, 0] + rest.sum(1)
        )

    parent = InCode(followed)
    graphs = [describe(parent, torch.randn(batch, length, 4)) for batch, length in ((2, 6), (3, 9))]
    assert graphs[0].notes
    assert graphs[0].notes == graphs[1].notes
    assert transfer(parent, InCode(followed, 12), torch.randn(2, 6, 4)).exact


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.transpose(0, 1).flatten(0, 1).view(x.shape[1], x.shape[0], -1),  # as it was
        lambda x: x.view(len(x), -1, 2, x.shape[2]).amax(2),  # pairs, not as many as there are examples
    ],
)
def test_groups_are_the_same_for_any_input(function: Function) -> None:
    graphs = [describe(InCode(function), torch.randn(batch, 6, 4)) for batch in (2, 3)]
    assert graphs[0].notes
    assert graphs[0].notes == graphs[1].notes


class Swapped(nn.Module):
    def __init__(self, swap: bool, arguments: bool = False) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)
        self.swap, self.arguments = swap, arguments

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x, y = (y, x) if self.swap and self.arguments else (x, y)
        made = self.one(x), torch.tanh(self.other(y))
        return made[::-1] if self.swap and not self.arguments else made


@pytest.mark.parametrize("arguments", [False, True])
def test_inputs_and_outputs_come_in_the_same_order_or_nothing_is_promised(arguments: bool) -> None:
    inputs = torch.randn(2, 4), torch.randn(2, 4)
    for swap in (False, True):
        other = Swapped(not swap, arguments)
        assert transfer(Swapped(swap, arguments), Swapped(swap, arguments), inputs).exact
        answer = transfer(parent := Swapped(swap, arguments), other, inputs)
        assert not answer.exact or difference(parent, other, inputs) < 1e-5
