"""Scenario networks: each shows one way in which axes depend on each other.

Every one is small, runs on CPU in microseconds, and is built fresh by its class. `SCENARIOS` gives for
each the inputs it takes; `network` makes any number of others.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Chain(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))

    def through(self, x: Tensor) -> Tensor:
        """What the chain computes, for classes whose forward does more."""
        for layer in self:
            x = layer(x)
        return x


def conv_norm(made: int, taken: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(taken, made, 3, padding=1, bias=False), nn.BatchNorm2d(made))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner, self.outer = conv_norm(8, 3), conv_norm(6, 8), conv_norm(8, 6)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(x + self.outer(F.relu(self.inner(x))))
        return self.head(x.mean((2, 3)))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv_norm(4, 3), conv_norm(5, 4), conv_norm(6, 9)
        self.norm, self.head = nn.BatchNorm2d(15), nn.Linear(15, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = torch.cat([x, self.b(x)], 1)
        x = torch.cat([x, self.c(x)], 1)
        return self.head(self.norm(x).amax((2, 3)))


class Flatten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 5, 3), nn.Linear(5 * 36, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.conv(x)).flatten(1))


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.down, self.up = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        gate = torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.head(x * gate).mean((2, 3))


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.depthwise = (
            nn.Conv2d(3, 12, 3),
            nn.Conv2d(12, 8, 3, groups=4),
            nn.Conv2d(8, 16, 3, groups=8),
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.depthwise(F.relu(self.b(F.relu(self.a(x))))).amax((2, 3)))


class Shuffle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = (
            nn.Conv2d(3, 12, 3, padding=1),
            nn.Conv2d(12, 12, 3, groups=3, padding=1),
            nn.Linear(12, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.b(self.a(x)))
        n, _, h, w = x.shape
        x = x.view(n, 3, 4, h, w).transpose(1, 2).reshape(n, 12, h, w)
        return self.head(x.mean((2, 3)))


class Halves(nn.Module):
    """A chunk that goes two ways, as in a gated linear unit written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 16), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.up(x).chunk(2, -1)
        return self.down(value * torch.sigmoid(gate))


class PackedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(6, 12), nn.LayerNorm(12)
        self.qkv, self.out, self.head = nn.Linear(12, 36), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, 12)
        return self.head(x + self.out(mixed))


class SeparateAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 12), nn.Linear(12, 3)
        self.q, self.k, self.v, self.out = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, length, _ = x.shape
        q, k, v = (layer(x).view(n, length, 3, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        return self.head(x + self.out((scores @ v).transpose(1, 2).flatten(2)))


class TiedLanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions, self.norm = (
            nn.Embedding(11, 8),
            nn.Parameter(torch.randn(1, 16, 8)),
            nn.LayerNorm(8),
        )
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions[:, : ids.shape[1]]
        return self.head(self.norm(x + self.inner(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gru, self.head = nn.GRU(12, 7, batch_first=True), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(self.lstm(x)[0])[0])


class Projected(nn.Module):
    """An LSTM whose hidden state is projected to fewer units."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 6, proj_size=4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


class LastStates(nn.Module):
    """A classifier on the last states of stacked cells, which lie in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 6, num_layers=2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[1][0][-1])


class Encoder(nn.Module):
    """PyTorch's own encoder layer, whose fused kernel must not hide its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class WeightNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8))
        self.b = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.relu(self.a(x)))


class GroupNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 12, 3), nn.GroupNorm(3, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


class PixelShuffle(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(3, 2, 3))


class InPlace(nn.Module):
    """Parts of a buffer are written through views; the whole is read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 4), nn.Linear(6, 5), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        both = x.new_zeros(x.shape[0], 9)
        both[:, :4] = self.a(x)
        both[:, 4:].copy_(self.b(x)).relu_()
        return self.head(both.mul_(2))


class Loop(nn.Module):
    """One layer called several times by a Python loop."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = x + torch.tanh(self.again(x))
        return self.head(x)


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.head = (
            nn.Conv2d(3, 8, 2, 2),
            nn.ConvTranspose2d(8, 6, 2, 2),
            nn.Conv2d(9, 2, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([x, F.relu(self.up(F.relu(self.down(x))))], 1))


class BareParameters(nn.Module):
    """A class token, a scale of residual branches, a matrix used as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.token = nn.Linear(6, 8), nn.Parameter(torch.randn(1, 1, 8))
        self.gain, self.matrix = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8, 5))
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], 1)
        return self.head(F.gelu((x * self.gain) @ self.matrix))


class RootMeanSquare(nn.Module):
    """A norm written out, as many language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.gain, self.b = nn.Linear(6, 8), nn.Parameter(torch.rand(8) + 0.5), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return self.b(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain)


class RelativeShift(nn.Module):
    """Scores are shifted by a reshape that fits no axis and masked: neither concerns the heads beside."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 12), nn.Linear(12, 3)
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, length, _ = x.shape
        q, k, v = (layer(x).view(n, length, 3, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = F.pad(q @ k.transpose(-1, -2), (1, 0)).view(n, 3, length + 1, length)[:, :, 1:]
        mask = torch.ones(length, length, dtype=torch.bool).tril().expand(n, 3, length, length)
        scores = torch.where(mask, scores, -1e4).softmax(-1)
        return self.head((scores @ v).transpose(1, 2).flatten(2))


class OneBit(nn.Module):
    """Only the sign of a weight counts: no share can be put into it, nor into what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 5, bias=False), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(F.linear(torch.tanh(self.a(x)), self.b.weight.sign())))


class Block(nn.Module):
    """One of several shapes of block, from `taken` channels to some number of its own."""

    def __init__(self, kind: str, taken: int, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.made = {"chain": width, "concat": taken + width, "chunk": width}.get(kind, taken)
        self.a = conv_norm(2 * width if kind == "chunk" else width, taken)
        self.b = conv_norm(taken if kind in ("residual", "excite") else width, width)
        self.c = nn.Conv2d(taken, taken, 3, padding=1, groups=taken)

    def forward(self, x: Tensor) -> Tensor:
        match self.kind:
            case "chain":
                return torch.relu(self.b(torch.relu(self.a(x))))
            case "residual":
                return torch.relu(x + self.b(torch.relu(self.a(x))))
            case "concat":
                return torch.cat([x, self.b(torch.relu(self.a(x)))], 1)
            case "chunk":
                left, right = self.a(x).chunk(2, 1)
                return self.b(left * torch.sigmoid(right))
            case "excite":
                return x * torch.sigmoid(self.b(self.a(x.mean((2, 3), keepdim=True))))
            case _:
                return torch.relu(self.c(x))


BLOCKS = ("chain", "residual", "concat", "chunk", "excite", "depthwise")


def network(width: int, kinds: Sequence[tuple[str, int]], classes: int = 3) -> nn.Sequential:
    """A network of such blocks, each with an inner width of its own."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for kind, inner in kinds:
        block = Block(kind, width, inner)
        layers.append(block)
        width = block.made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


IMAGE, VECTOR, SEQUENCE = torch.randn(2, 3, 8, 8), torch.randn(2, 6), torch.randn(2, 7, 6)

SCENARIOS: dict[type[nn.Module], Tensor] = {
    Chain: VECTOR,
    Residual: IMAGE,
    Dense: IMAGE,
    Flatten: IMAGE,
    SqueezeExcite: IMAGE,
    Grouped: IMAGE,
    Shuffle: IMAGE,
    Halves: VECTOR,
    PackedAttention: SEQUENCE,
    SeparateAttention: SEQUENCE,
    TiedLanguageModel: torch.arange(14).reshape(2, 7) % 11,
    Recurrent: torch.randn(2, 7, 5),
    Projected: torch.randn(2, 7, 5),
    LastStates: torch.randn(2, 7, 5),
    Encoder: torch.randn(2, 7, 8),
    WeightNormed: VECTOR,
    GroupNormed: IMAGE,
    PixelShuffle: IMAGE,
    InPlace: VECTOR,
    Loop: VECTOR,
    Transposed: IMAGE,
    BareParameters: SEQUENCE,
    RootMeanSquare: VECTOR,
    RelativeShift: SEQUENCE,
    OneBit: VECTOR,
}
