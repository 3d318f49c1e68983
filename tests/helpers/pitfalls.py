"""Small networks in which copying units goes wrong unless somebody thought of it.

Each is a forward function over a few parts. For all of them, spaces that are found free can be widened
exactly; what cannot be is pinned. `FREE` names those in which every unit is free to be copied.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.networks import IMAGE, SEQUENCE, VECTOR


class Made(nn.Module):
    """A module from a function and the parts that it uses."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def numbers(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape) + 0.5)


def _written(m: Any, x: Tensor) -> Tensor:
    x = m.a(x).clone()
    x[:, [0, 2]] = 0.5
    return m.b(x)


def _written_rows(m: Any, x: Tensor) -> Tensor:
    x, rows = m.a(x), m.c(x)
    some = x.new_zeros(7, 2, 8)
    some[[1, 3]] = rows.expand(2, 2, 8)
    return m.b(some.amax(0) + x)


def _scattered(m: Any, x: Tensor) -> Tensor:
    x = m.a(x)
    return m.b(torch.zeros_like(x).scatter(1, torch.tensor([[0, 3], [1, 2]]), x[:, :2]))


def _tied(shift: Callable[[Any, Tensor], Tensor]) -> Made:
    """A tied embedding makes the norm before the head carry the shares, and `shift` is in between."""
    return Made(
        lambda m, x: F.linear(shift(m, m.norm(F.embedding(x, m.table))), m.table),
        table=numbers(11, 8),
        norm=nn.LayerNorm(8),
        one=numbers(1),
        across=nn.Linear(7, 5),
        window=nn.Conv1d(7, 5, 1),
    )


def _normed_with(beside: Callable[[Any, Tensor], Tensor], width: int) -> Made:
    """A layer norm over units and something else."""
    return Made(
        lambda m, x: m.b(m.norm(torch.cat([m.a(x), beside(m, x)], -1))),
        a=nn.Linear(6, 8),
        c=nn.Linear(6, 4),
        norm=nn.LayerNorm(8 + width),
        b=nn.Linear(8 + width, 3),
    )


def _between(function: Callable[[Tensor], Tensor]) -> Made:
    return Made(lambda m, x: m.b(function(m.a(x))), a=nn.Linear(6, 8), b=nn.Linear(8, 3))


def _upsampled(groups: int) -> Made:
    return Made(
        lambda m, x: m.b(torch.relu(m.up(torch.relu(m.a(x))))).mean((2, 3)),
        a=nn.Conv2d(3, 8, 1),
        up=nn.ConvTranspose2d(8, 16, 2, 2, groups=groups),
        b=nn.Conv2d(16, 3, 1),
    )


def _shuffled(kind: type[nn.Conv2d] | type[nn.ConvTranspose2d]) -> Made:
    """Groups of five over three times five channels that were shuffled: no group is whole afterwards."""
    return Made(
        lambda m, x: m.b(torch.relu(m.g(m.a(x).view(2, 3, 5, 8, 8).transpose(1, 2).reshape(2, 15, 8, 8)))),
        a=nn.Conv2d(3, 15, 1),
        g=kind(15, 12, 3, groups=3),
        b=nn.Conv2d(12, 3, 1),
    )


def _grouped_queries(m: Any, x: Tensor) -> Tensor:
    q, k, v = (f(x).view(2, 7, -1, 4).transpose(1, 2) for f in (m.q, m.k, m.v))
    mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return m.out(mixed.transpose(1, 2).flatten(2))


TOKENS = torch.arange(14).reshape(2, 7) % 11
TWO = torch.tensor([2.0])

PITFALLS: dict[str, tuple[Callable[[], Made], Tensor]] = {
    "a vector as a matrix": (
        lambda: Made(lambda m, x: (torch.tanh(m.a(x)) @ m.v)[:, None], a=nn.Linear(6, 8), v=numbers(8)),
        VECTOR,
    ),
    "two vectors": (
        lambda: Made(
            lambda m, x: m.b(x) * torch.dot(m.u, m.v), u=numbers(4), v=numbers(4), b=nn.Linear(6, 3)
        ),
        VECTOR,
    ),
    "spectral norm": (
        lambda: Made(
            lambda m, x: m.b(torch.relu(m.a(x))),
            a=nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)),
            b=nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)),
        ),
        VECTOR,
    ),
    "a weighted sum": (
        lambda: Made(
            lambda m, x: m.b((torch.tanh(m.a(x))[:, :, None] * m.v).sum(1)),
            a=nn.Linear(6, 8),
            v=numbers(8, 5),
            b=nn.Linear(5, 3),
        ),
        VECTOR,
    ),
    "a plain sum": (lambda: _between(lambda x: x * torch.tanh(x).sum(1, keepdim=True)), VECTOR),
    "a low rank": (
        lambda: Made(
            lambda m, x: m.b(torch.tanh(F.linear(x, m.u @ m.w))),
            u=numbers(8, 4),
            w=numbers(4, 6),
            b=nn.Linear(8, 3),
        ),
        VECTOR,
    ),
    "ones added": (lambda: _tied(lambda m, x: x + torch.ones(8)), TOKENS),
    "one number added": (lambda: _tied(lambda m, x: x + m.one.expand(8)), TOKENS),
    "a constant added": (lambda: _tied(lambda m, x: x + TWO.expand(8)), TOKENS),
    "one number copied": (lambda: _tied(lambda m, x: x + x.clone().copy_(m.one)), TOKENS),
    "padded with ones": (lambda: _tied(lambda m, x: F.pad(x, (0, 0, 1, 1), value=1.0)), TOKENS),
    "a bias across units": (lambda: _tied(lambda m, x: m.across(x.mT).mT), TOKENS),
    "a window beside units": (lambda: _tied(lambda m, x: m.window(x)), TOKENS),
    "rounded": (lambda: _tied(lambda m, x: torch.div(x, 2.5, rounding_mode="floor")), TOKENS),
    "transposed in groups": (lambda: _upsampled(4), IMAGE),
    "transposed by channel": (lambda: _upsampled(8), IMAGE),
    "groups after a shuffle": (lambda: _shuffled(nn.Conv2d), IMAGE),
    "transposed groups after a shuffle": (lambda: _shuffled(nn.ConvTranspose2d), IMAGE),
    "units written by index": (lambda: Made(_written, a=nn.Linear(6, 8), b=nn.Linear(8, 3)), VECTOR),
    "rows written by index": (
        lambda: Made(_written_rows, a=nn.Linear(6, 8), b=nn.Linear(8, 3), c=nn.Linear(6, 8)),
        VECTOR,
    ),
    "units scattered": (lambda: Made(_scattered, a=nn.Linear(6, 8), b=nn.Linear(8, 3)), VECTOR),
    "a triangle": (lambda: _between(lambda x: (x[:, :, None] * torch.ones(5)).triu().amax(2)), VECTOR),
    "an unbiased deviation": (lambda: _between(lambda x: x / x.std(-1, keepdim=True)), VECTOR),
    "a biased variance": (
        lambda: _between(lambda x: x / x.var(-1, keepdim=True, unbiased=False)),
        VECTOR,
    ),
    "the number of the largest": (lambda: _between(lambda x: x * x.max(-1, keepdim=True)[1]), VECTOR),
    "a norm over inputs, too": (lambda: _normed_with(lambda m, x: x, 6), VECTOR),
    "a norm over padding, too": (lambda: _normed_with(lambda m, x: F.pad(m.c(x), (0, 2)), 6), VECTOR),
    "a norm over a softmax, too": (lambda: _normed_with(lambda m, x: m.c(x).softmax(-1), 4), VECTOR),
    "a norm over a product, too": (
        lambda: _normed_with(lambda m, x: (m.c(x)[:, :, None] * m.c(x)[:, None]).flatten(1), 16),
        VECTOR,
    ),
    "a norm over two spaces": (lambda: _normed_with(lambda m, x: m.c(x), 4), VECTOR),
    "a space twice": (
        lambda: Made(
            lambda m, x: m.b((m.a(x).transpose(1, 2) @ m.a(x)).mean(1)), a=nn.Linear(6, 8), b=nn.Linear(8, 3)
        ),
        SEQUENCE,
    ),
    "grouped queries": (
        lambda: Made(
            _grouped_queries,
            q=nn.Linear(6, 16),
            k=nn.Linear(6, 8),
            v=nn.Linear(6, 8),
            out=nn.Linear(16, 3),
        ),
        SEQUENCE,
    ),
    "standardised weights": (
        lambda: Made(
            lambda m, x: m.b(F.relu(F.linear(m.a(x), m.w - m.w.mean(1, keepdim=True)))),
            a=nn.Linear(6, 8),
            w=numbers(5, 8),
            b=nn.Linear(5, 3),
        ),
        VECTOR,
    ),
}
FREE = {
    "a vector as a matrix",
    "two vectors",
    "spectral norm",
    "a weighted sum",
    "a low rank",
    "transposed in groups",
    "transposed by channel",
    "rows written by index",
    "a biased variance",
    "a norm over two spaces",
    "a space twice",
    "standardised weights",
}
