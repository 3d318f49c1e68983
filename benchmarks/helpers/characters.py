"""A small character model and a text that is on every machine: the source of Python's standard library."""

import math
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

LENGTH = 64
BATCH = 32
ALPHABET = 98  # printable ASCII, newline, and one for everything else
FILES = 40  # enough for a million characters


@dataclass(frozen=True)
class Text:
    """Windows of characters, as numbers: the last of each is only predicted."""

    train: Tensor
    held_out: Tensor

    def windows(self, count: int, seed: int) -> Tensor:
        """Some windows to train or calibrate on, without the character that follows."""
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        return self.train[order[:count], :LENGTH]


def corpus() -> Text:
    """The largest modules of the standard library, the last tenth of each held out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py"), key=lambda path: (-path.stat().st_size, path.name))[:FILES]
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for path in files:
        codes = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
        numbers = torch.where((codes >= 32) & (codes < 127), codes - 32, torch.where(codes == 10, 96, 97))
        windows = numbers[: len(numbers) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
        cut = len(windows) - len(windows) // 10
        parts[0].append(windows[:cut])
        parts[1].append(windows[cut:])
    return Text(torch.cat(parts[0]), torch.cat(parts[1])[::4])


class Block(nn.Module):
    """Attention and a feed-forward part, each on a normalised stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mix = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The stream with what the block adds to it."""
        batch, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (
            part(y).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        y = (
            scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(batch, length, width)
        )
        x = x + self.mix(y)
        made: Tensor = x + self.down(gelu(self.up(self.norm2(x))))
        return made


class GPT(nn.Module):
    """A decoder on characters."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(ALPHABET, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, ALPHABET, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(
                    module.weight, std=0.02 if isinstance(module, nn.Embedding) else width**-0.5 / 2
                )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next character at each place."""
        y = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            y = block(y)
        made: Tensor = self.head(self.norm(y))
        return made


def train_characters(model: GPT, text: Text, steps: int, seed: int, rate: float = 2e-3) -> GPT:
    """Adam, the rate falling to zero along a cosine."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(steps):
        chosen = text.train[torch.randint(len(text.train), (BATCH,), generator=generator)]
        optimizer.zero_grad()
        scores = model(chosen[:, :-1]).flatten(0, 1)
        torch.autograd.backward(cross_entropy(scores, chosen[:, 1:].flatten()))
        optimizer.step()
        schedule.step()
    return model.eval()


def perplexity(model: GPT, text: Text) -> float:
    """On text that was held out."""
    model.eval()
    with torch.inference_mode():
        losses = [
            cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
            for part in torch.split(text.held_out, 64)
        ]
    return math.exp(sum(losses) / (text.held_out.shape[0] * LENGTH))
