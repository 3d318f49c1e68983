"""Attention by more units than before: the same scores, where nothing knows how many units there are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer

X = torch.randn(2, 5, 6)
# How queries and keys are made, and whether more units can be exact.
WAYS = {
    "separate": True,
    "packed": True,
    "own scale": True,
    "shared with values": False,
    "queries normed": False,
    "queries turned": False,
    "queries bent": False,
    "scaled before": False,
}


class Attention(nn.Module):
    def __init__(self, way: str, heads: int, keys: int, values: int) -> None:
        super().__init__()
        self.way, self.heads, self.keys, self.values = way, heads, keys, values
        if way == "packed":
            self.packed = nn.Linear(6, heads * (2 * keys + values))
        else:
            self.q, self.k = nn.Linear(6, heads * keys), nn.Linear(6, heads * keys)
            self.v = nn.Linear(6, heads * values)
        if way == "queries normed":
            self.norm = nn.LayerNorm(keys)
        self.turn: Tensor
        if way == "queries turned":
            self.register_buffer("turn", torch.linspace(0, 1, keys), persistent=False)
        self.out = nn.Linear(heads * values, 3)

    def forward(self, x: Tensor) -> Tensor:
        sizes = [self.heads * width for width in (self.keys, self.keys, self.values)]
        made = self.packed(x).split(sizes, -1) if self.way == "packed" else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in made)
        match self.way:
            case "shared with values":
                v = v + k
            case "queries normed":
                q = self.norm(q)
            case "queries turned":
                q = q * self.turn.cos()
            case "queries bent":
                q = torch.tanh(q)
            case "scaled before":
                q = q * self.keys**-0.25
        scale = 0.3 if self.way == "own scale" else None
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
        return self.out(mixed.transpose(1, 2).flatten(2))


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(WAYS)),
    st.tuples(st.integers(2, 3), st.integers(0, 2)),
    st.tuples(st.integers(2, 4), st.integers(0, 5)),
    st.integers(0, 3),
)
def test_more_units_give_the_same_scores(
    way: str, heads: tuple[int, int], keys: tuple[int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    values = [keys[0], sum(keys)] if way == "shared with values" else [3, 4]
    parent = Attention(way, heads[0], keys[0], values[0]).eval()
    randomise(parent, seed)
    child = Attention(way, sum(heads), sum(keys), values[1])
    report = transfer(parent, child, X, verify=True)
    assert report.exact == (WAYS[way] or not keys[1]), report.plan.doubts
    assert report.difference is not None
    assert not report.exact or report.difference < 1e-5


@pytest.mark.parametrize("scale", [None, 0.3])
def test_new_units_learn_and_part(scale: float | None) -> None:
    parent, child = (Attention("own scale" if scale else "separate", 2, keys, 3) for keys in (3, 6))
    transfer(parent, child, X)
    child(X).square().sum().backward()
    for layer in (child.q, child.k):
        rows = layer.weight.grad
        assert rows is not None
        assert (rows.abs().sum(1) > 0).all()
        assert len(torch.unique(rows, dim=0)) == len(rows)
