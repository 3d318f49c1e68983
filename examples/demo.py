"""Describe two residual networks side by side, and carry the weights of one into the other: `make demo`.

The second is wider and one block deeper than the first. Look at the column of tensors: an axis is
made of spaces (s0, s1 ...), and wherever the same space appears, widths must change together. The
residual adds tie a whole stage to one space, whatever its width.

Then the weights of the first go into the second, which computes the same from there on, until it is trained.
"""

import torch
from rich.console import Console
from torch import Tensor, nn

import modelkeeper
from modelkeeper.frontends.torch import describe
from modelkeeper.render import side_by_side


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(inner)))


class ResNet(nn.Module):
    """A stem, blocks of one width, and a head."""

    def __init__(self, width: int, depth: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(torch.relu(self.stem(x)))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


def main() -> None:
    """Print both, as wide as the terminal or a wide page."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    small, large = ResNet(width=16, depth=1), ResNet(width=32, depth=2)
    names = "ResNet, width 16, 1 block", "ResNet, width 32, 2 blocks"
    console.print(side_by_side((names[0], describe(small)), (names[1], describe(large))))
    console.print("\nThe weights of the first into the second:\n")
    console.print(str(modelkeeper.transfer(small, large, verify=True)))


if __name__ == "__main__":
    main()
