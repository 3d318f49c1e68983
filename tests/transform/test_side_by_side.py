"""The law for several parents: a child in which they lie side by side computes the mean of them all."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.errors import InvalidSetting
from modelkeeper.frontends.torch import describe
from modelkeeper.matching import align
from modelkeeper.transform import SideBySide, side_by_side
from tests.helpers.families import FAMILIES, INPUTS, PICTURES

APART = [name for name in FAMILIES if INPUTS[name] is PICTURES]
# The parents' widths, the child's, their depths, and by how much the child is deeper.
shapes = st.sampled_from(
    [
        ((8, 8), 20, (1, 1), 0),
        ((8, 8), 24, (1, 2), 0),
        ((8, 16), 28, (2, 1), 1),
        ((8, 8, 8), 32, (1, 1, 1), 0),
        ((12, 8), 28, (1, 1), 1),
    ]
)


def model(family: str, width: int, depth: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    made = FAMILIES[family](width, depth).eval()
    randomise(made, seed)
    return made


def mean_of(parents: list[nn.Module], inputs: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([parent(inputs) for parent in parents]).mean(0)


@pytest.mark.parametrize("family", APART)
@settings(max_examples=8)
@given(shapes, st.integers(0, 9))
def test_the_child_computes_the_mean(family: str, shape: Any, seed: int) -> None:
    widths, wide, depths, deeper = shape
    parents = [model(family, w, d, seed + n) for n, (w, d) in enumerate(zip(widths, depths, strict=True))]
    child = FAMILIES[family](wide, max(depths) + deeper).eval()
    report = transfer(parents, child, INPUTS[family], verify=True)
    assert report.difference is not None
    if report.exact:
        assert report.difference < 1e-5
        torch.testing.assert_close(child(PICTURES), mean_of(parents, PICTURES), rtol=1e-3, atol=1e-4)
    elif len(set(depths)) == 1 and not deeper:
        raise AssertionError(report.plan.doubts)


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU, last: list[nn.Module] | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for taken, made in itertools.pairwise(widths):
        layers += [nn.Linear(taken, made), act()]
    return nn.Sequential(*layers[:-1], *(last or []))


FIVE = torch.randn(4, 5)


def test_verify_compares_with_the_mean_and_the_report_says_so() -> None:
    report = transfer([mlp(5, 8, 3), mlp(5, 6, 3)], mlp(5, 16, 3), FIVE, verify=True)
    assert report.exact
    assert report.difference is not None
    assert report.difference < 1e-6
    assert "computes the mean of what the parents" in str(report)
    assert set(report.plan.summary()) == {"joined"}
    assert report.missing_keys == report.unexpected_keys == []


def test_weights_between_two_parents_are_zero_and_heads_read_half_of_each() -> None:
    first, second, child = mlp(5, 4, 4, 3), mlp(5, 4, 4, 3), mlp(5, 8, 8, 3)
    transfer([first, second], child, FIVE)
    ours, theirs, both = first.state_dict(), second.state_dict(), child.state_dict()
    middle = both["2.weight"]
    assert middle[:4, 4:].abs().max() == middle[4:, :4].abs().max() == 0
    torch.testing.assert_close(middle[4:, 4:], theirs["2.weight"])
    torch.testing.assert_close(both["4.weight"][:, :4], ours["4.weight"] / 2)
    torch.testing.assert_close(both["4.bias"], (ours["4.bias"] + theirs["4.bias"]) / 2)


def test_one_in_a_list_is_as_one_alone() -> None:
    parent, child, alone = mlp(5, 4, 3), mlp(5, 8, 3), mlp(5, 8, 3)
    transfer([parent], child, FIVE)
    transfer(parent, alone, FIVE)
    for name, value in child.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name])


def test_where_a_second_parent_does_not_fit_its_most_important_units_do() -> None:
    first, second, child = mlp(5, 8, 3), mlp(5, 8, 3), mlp(5, 12, 3)
    report = transfer([first, second], child, FIVE)
    assert not report.exact
    assert any("parent 2" in doubt and "8 units became 4" in doubt for doubt in report.plan.doubts)
    assert isinstance(report.plan, SideBySide)
    assert report.plan.blocks.sizes == {0: (8, 4)}


def test_no_room_is_an_error_and_the_target_is_as_it_was() -> None:
    child = mlp(5, 8, 3)
    before = {name: value.clone() for name, value in child.state_dict().items()}
    with pytest.raises(InvalidSetting, match="not wide enough"):
        transfer([mlp(5, 8, 3), mlp(5, 8, 3)], child, FIVE)
    for name, value in child.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("asked", [{"calibrate": FIVE}, {"noise": 0.1}, {"program": b"x"}, {"weights": {}}])
def test_what_several_cannot_do_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="single source"):
        transfer([mlp(5, 4, 3), mlp(5, 4, 3)], mlp(5, 8, 3), FIVE, **asked)
    with pytest.raises(InvalidSetting, match="empty"):
        transfer([], mlp(5, 8, 3), FIVE)


@pytest.mark.parametrize(
    ("widen", "doubt"),
    [
        (lambda w: mlp(5, w, 3, last=[nn.Softmax(1)]), "softmax"),
        (lambda w: nn.Sequential(nn.Linear(5, w), nn.LayerNorm(w), nn.Linear(w, 3)), "statistic"),
        (lambda w: nn.Sequential(nn.Linear(5, w), nn.PReLU(init=1 / w), nn.Linear(w, 3)), "first parent"),
        (lambda w: nn.Sequential(nn.Linear(5, w), nn.ReLU(), nn.Linear(w, 3), nn.Linear(3, 3)), "room"),
    ],
)
def test_what_is_not_exact_is_doubted(widen: Callable[[int], nn.Module], doubt: str) -> None:
    if doubt == "room":  # all meet in three units, and go on from there
        with pytest.raises(InvalidSetting, match="not wide enough"):
            transfer([widen(4), widen(4)], widen(8), FIVE)
        return
    report = transfer([widen(4), widen(5)], widen(9), FIVE, verify=True)
    assert any(doubt in told for told in report.plan.doubts), report.plan.doubts
    assert report.difference is not None
    assert report.difference > 1e-6


def test_norms_in_groups_are_exact_where_the_groups_are_shared_out() -> None:
    def net(groups: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4 * groups, 3), nn.GroupNorm(groups, 4 * groups), nn.ReLU(), nn.Flatten(2), Mean(),
            nn.Linear(4 * groups, 3),
        )  # fmt: skip

    parents = [net(2), net(2)]
    for seed, parent in enumerate(parents):
        randomise(parent, seed)
    report = transfer(parents, net(4), PICTURES, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(-1)


def test_narrower_children_are_the_child_with_fewer_units() -> None:
    graphs = [describe(mlp(5, 8, 3), FIVE), describe(mlp(5, 4, 3), FIVE), describe(mlp(5, 12, 3), FIVE)]
    plan = side_by_side([(graph, align(graph, graphs[2])) for graph in graphs[:2]], graphs[2])
    assert plan is not None
    for number, graph in enumerate(graphs[:2]):
        assert plan.blocks.narrower(number).tensors == graph.tensors
    assert plan.blocks.places(graphs[2].tensors["2.weight"].axes[1].of, 1).tolist() == [8, 9, 10, 11]
    assert plan.to_json()


class Shuffling(nn.Module):
    """Halves that are shuffled again and again, so that an axis holds parts of a stage several times."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 2 * width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.head = nn.Linear(2 * width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        for conv in self.convs:
            kept, changed = x.chunk(2, 1)
            x = torch.cat([kept, conv(changed).relu()], 1)
            n, units, height, width = x.shape
            x = x.view(n, 2, units // 2, height, width).transpose(1, 2).reshape(n, units, height, width)
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_parts_of_a_stage_that_are_shuffled_are_shared_out_alike(depth: int) -> None:
    parents = [Shuffling(16, depth), Shuffling(16, depth)]
    report = transfer(parents, Shuffling(32, depth), PICTURES, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5


def test_a_single_unit_of_a_parent_has_its_place_too() -> None:
    report = transfer([mlp(5, 4, 1, 4, 3), mlp(5, 4, 1, 4, 3)], mlp(5, 8, 2, 8, 3), FIVE, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-6


def test_units_of_which_only_some_are_shared_out_are_doubted() -> None:
    class Joined(nn.Module):
        """Channels of pictures, which all parents have in common, and others, in one norm."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, width, 1), nn.BatchNorm2d(3 + width)
            self.head = nn.Linear(3 + width, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(torch.cat([x, self.conv(x)], 1)).mean((2, 3)))

    parents = [Joined(4), Joined(4)]
    for seed, parent in enumerate(parents):
        randomise(parent, seed)
    report = transfer(parents, Joined(8), PICTURES, verify=True)
    assert any("share some of the units of norm" in doubt for doubt in report.plan.doubts)
    assert report.difference is not None
    assert report.difference > 1e-6


def test_masks_that_are_laid_side_by_side_with_their_weights_are_exact() -> None:
    class Masked(nn.Linear):
        mask: torch.Tensor

        def __init__(self, taken: int, made: int) -> None:
            super().__init__(taken, made)
            self.register_buffer("mask", (torch.rand(made, taken) < 0.5).float())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.weight * self.mask, self.bias)

    def net(width: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(5, width), nn.ReLU(), Masked(width, width), nn.ReLU(), nn.Linear(width, 3)
        )

    report = transfer([net(4), net(4)], net(8), FIVE, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-6


class Tied(nn.Module):
    """A head that is the table of words; the norm before it carries each parent's half."""

    def __init__(self, width: int, norm: bool = True) -> None:
        super().__init__()
        self.words, self.between = nn.Embedding(11, width), nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.between(self.words(ids)).relu()) @ self.words.weight.T


@pytest.mark.parametrize("norm", [True, False])
def test_a_tied_head_reads_half_of_each_by_the_norm_before_it(norm: bool) -> None:
    parents, ids = [Tied(4, norm).eval(), Tied(4, norm).eval()], torch.arange(11)
    for seed, parent in enumerate(parents):
        randomise(parent, seed)
    report = transfer(parents, Tied(8, norm).eval(), ids, verify=True)
    assert report.difference is not None
    assert report.exact == (report.difference < 1e-5) == norm, report.plan.doubts
    assert norm or "sum" in report.plan.doubts[0]
