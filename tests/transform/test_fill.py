"""Units under a norm can become any number, and the child still computes what the parent computes."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.frontends.torch import difference

TOKENS = torch.randint(0, 11, (3, 6))


class WrittenOut(nn.Module):
    """An RMS norm as many models write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3))


NORMS = {
    "layer": lambda width: nn.LayerNorm(width, eps=1e-3),
    "rms": lambda width: nn.RMSNorm(width, eps=1e-3),
    "written out": WrittenOut,
}
# Where it goes out of the plain form: what is done, and whether it stays exact with each norm.
TWISTS = {
    "plain": {"layer", "rms", "written out"},
    "tied": {"layer", "rms", "written out"},
    "raw reader": {"layer", "rms", "written out"},
    "rectified": {"layer", "rms", "written out"},
    "rectified up to six": set[str](),
    "pooled": {"layer", "rms", "written out"},
    "layer scale": {"rms", "written out"},
    "post norm": {"rms", "written out"},
    "gelu": set[str](),
    "joined": set[str](),
    "gated": set[str](),
}


class Stream(nn.Module):
    """A residual stream with a norm before each branch, and one thing that may be unlike that."""

    def __init__(self, width: int, inner: int, norm: str, twist: str, blocks: int = 2) -> None:
        super().__init__()
        self.twist = twist
        self.tokens = nn.Embedding(11, width)
        self.places = nn.Parameter(torch.randn(1, 6, width))
        self.norms = nn.ModuleList(NORMS[norm](width) for _ in range(blocks + 1))
        self.up = nn.ModuleList(nn.Linear(width, inner) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(inner, width) for _ in range(blocks))
        self.scales = nn.ParameterList(
            torch.randn(width) for _ in range(blocks if twist == "layer scale" else 0)
        )
        self.head = nn.Linear(width + 11 if twist == "joined" else width, 11, bias=False)
        if twist == "tied":
            self.head.weight = self.tokens.weight
        if twist == "joined":
            self.side = nn.Linear(width, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            branch = down(torch.tanh(up(self.norms[number](x))))
            if self.twist == "layer scale":
                branch = branch * self.scales[number]
            if self.twist == "post norm" and number == 0:
                x = self.norms[number](x)
            x = x + branch
        if self.twist == "raw reader":
            return self.head(x)
        x = self.norms[-1](x)
        match self.twist:
            case "rectified":
                x = torch.relu(x)
            case "rectified up to six":
                x = nn.functional.relu6(x)
            case "gelu":
                x = nn.functional.gelu(x)
            case "pooled":
                x = x.mean(1)
            case "joined":
                x = torch.cat([x, self.side(x)], -1)
            case "gated":
                x = x * torch.sigmoid(x)
        return self.head(x)


def stream(width: int, inner: int, norm: str, twist: str, seed: int = 0, blocks: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    model = Stream(width, inner, norm, twist, blocks=blocks).eval()
    randomise(model, seed)
    return model


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(NORMS)),
    st.sampled_from(sorted(TWISTS)),
    st.integers(2, 7),
    st.integers(0, 15),
    st.integers(0, 3),
)
def test_a_stream_grows_to_any_width(norm: str, twist: str, width: int, more: int, seed: int) -> None:
    parent = stream(width, 5, norm, twist, seed=seed)
    report = transfer(parent, stream(width + more, 7, norm, twist, seed=9), TOKENS, verify=True)
    assert report.exact == (norm in TWISTS[twist] or more % width == 0), report.plan.doubts
    assert report.difference is not None
    assert not report.exact or report.difference < 1e-5


@pytest.mark.parametrize("norm", sorted(NORMS))
def test_a_stream_grows_in_width_and_depth(norm: str) -> None:
    parent, child = stream(8, 20, norm, "plain"), stream(12, 24, norm, "plain", seed=9, blocks=4)
    report = transfer(parent, child, TOKENS, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5


def test_a_post_norm_layer_norm_is_nearer_than_unequal_copies_and_says_why_it_is_not_exact() -> None:
    parent, child = stream(8, 5, "layer", "post norm"), stream(12, 5, "layer", "post norm", seed=9)
    report = transfer(parent, child, TOKENS)
    assert "what a layer norm makes runs into" in report.plan.doubts[0]
    assert difference(parent, child, TOKENS) < 0.1


@pytest.mark.parametrize("norm", sorted(NORMS))
def test_new_units_learn(norm: str) -> None:
    """What was filled in takes part: its makers or its readers have a gradient at once, both do later."""
    child = stream(12, 5, norm, "plain", seed=9)
    transfer(stream(8, 5, norm, "plain"), child, TOKENS)
    optimizer = torch.optim.SGD(child.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(child(TOKENS).flatten(0, 1), TOKENS.flatten()).backward()
        optimizer.step()
    for name in ("down.0.weight", "up.1.weight"):
        gradient = child.get_parameter(name).grad
        assert gradient is not None
        new = gradient[8:] if name.startswith("down") else gradient[:, 8:]
        assert (new.abs().sum(1 if name.startswith("down") else 0) > 0).all()
    rows = child.get_parameter("down.0.weight")[8:]
    assert all(not torch.equal(one, other) for one, other in pairwise(rows))
