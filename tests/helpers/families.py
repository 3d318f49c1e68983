"""Families of networks, each at any width and depth: what the law of transfers is held on.

A family shows one way in which axes depend on each other. `FAMILIES` builds a member from its width (a
multiple of four) and its depth; `INPUTS` says what it runs on.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS = 11


def conv_norm(taken: int, made: int, kernel: int = 3, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(taken, made, kernel, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(made))


class Plain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = conv_norm(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


class Residual(nn.Module):
    """Two convolutions beside a shortcut; the inner width has its own space, and may come in groups."""

    def __init__(self, width: int, inner: int, groups: int = 1, excite: bool = False) -> None:
        super().__init__()
        self.a, self.b = conv_norm(width, inner, 1), conv_norm(inner, inner, 3, groups)
        self.c = conv_norm(inner, width, 1)
        self.down = nn.Conv2d(inner, inner // 2, 1) if excite else None
        self.up = nn.Conv2d(inner // 2, inner, 1) if excite else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.b(F.relu(self.a(x))))
        if self.down is not None and self.up is not None:
            y = y * torch.sigmoid(self.up(F.relu(self.down(y.mean((2, 3), keepdim=True)))))
        return F.relu(x + self.c(y))


class Branches(nn.Module):
    """Two ways, end to end, and a convolution over both; with a shortcut, so that more of them can be had."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = conv_norm(width, width // 2, 1), conv_norm(width, width // 4)
        self.c = conv_norm(width // 2 + width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.c(torch.cat([F.relu(self.a(x)), F.relu(self.b(x))], 1)))


class Images(nn.Module):
    """A stem, blocks, and a head over the mean."""

    def __init__(self, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.stem, self.body = conv_norm(3, width), nn.Sequential(*blocks)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(F.relu(self.stem(x))).mean((2, 3)))


class Dense(nn.Module):
    """Every layer reads what all layers before it have made."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = conv_norm(3, width)
        self.layers = nn.ModuleList(conv_norm(width + n * width // 2, width // 2) for n in range(depth))
        self.head = nn.Linear(width + depth * width // 2, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """A pre-norm transformer block with heads of four units."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(n, length, 3, width // 4, 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    """Tokens, blocks, a norm, and a head that may be the table of tokens."""

    def __init__(self, width: int, depth: int, tied: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, width), nn.Embedding(9, width)
        self.body = nn.Sequential(*(Attention(width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.body(x)))


FAMILIES: dict[str, Callable[[int, int], nn.Module]] = {
    "chain": lambda width, depth: Images(width, [Plain(width) for _ in range(depth)]),
    "residual": lambda width, depth: Images(width, [Residual(width, width + 2) for _ in range(depth)]),
    "dense": Dense,
    "concat": lambda width, depth: Images(width, [Branches(width) for _ in range(depth)]),
    "excite": lambda width, depth: Images(width, [Residual(width, width, excite=True) for _ in range(depth)]),
    "grouped": lambda width, depth: Images(width, [Residual(width, width, groups=2) for _ in range(depth)]),
    "more groups": lambda width, depth: Images(
        width, [Residual(width, width, groups=width // 4) for _ in range(depth)]
    ),
    "depthwise": lambda width, depth: Images(
        width, [Residual(width, 2 * width, groups=2 * width) for _ in range(depth)]
    ),
    "attention": lambda width, depth: Language(width, depth, tied=False),
    "tied": lambda width, depth: Language(width, depth, tied=True),
}
SENTENCES = torch.arange(14).reshape(2, 7) * 5 % WORDS
PICTURES = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))
INPUTS = {name: SENTENCES if name in ("attention", "tied") else PICTURES for name in FAMILIES}
