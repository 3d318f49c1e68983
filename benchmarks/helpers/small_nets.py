"""Small networks and a data set that is inside a package, to train for a few seconds at a time.

    R(w, n)   a ResNet: three stages of n blocks, w, 2w and 4w wide
    V(w, n)   the same without shortcuts: n convolutions to a stage

on Fashion-MNIST as Debian packages it, cut to 12,000 training images: 188 steps are one epoch. One thread,
SGD with a cosine schedule, batches of 64. Budgets are counted in steps, never in seconds.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from benchmarks.training import data

EPOCH, BATCH = 188, 64
IMAGES = EPOCH * BATCH
RATE = 0.1  # from scratch
WARM = 0.3 * RATE  # from the weights of another network
INPUT = torch.zeros(2, 1, 28, 28)


@dataclass(frozen=True)
class Data:
    """Images, normalised, and their classes."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def fashion_mnist(folder: Path | None = None) -> Data:
    """All test images and the first training images."""
    train, labels, test, test_labels = data.images("fashion-mnist", folder)

    def images(raw: data.Array) -> Tensor:
        found = torch.tensor(raw)[:, None].float() / 255
        return ((found - 0.286) / 0.353).contiguous(memory_format=torch.channels_last)

    return Data(
        images(train[:IMAGES]),
        torch.tensor(labels[:IMAGES]).long(),
        images(test),
        torch.tensor(test_labels).long(),
    )


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride > 1 or width != out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's sum, rectified."""
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + self.shortcut(x))


def _plain(width: int, out: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def _net(block: type[Block] | None, width: int, blocks: int) -> nn.Module:
    layers: list[nn.Module] = [_plain(1, width, 2)]
    last = width
    for stage in range(3):
        for number in range(blocks):
            stride = 2 if stage and not number else 1
            layers.append((block or _plain)(last, width << stage, stride))
            last = width << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 10)]
    model: Any = nn.Sequential(*layers)
    return cast(nn.Module, model.to(memory_format=torch.channels_last))


def build(name: str, seed: int) -> nn.Module:
    """A network by its name (R16-1, V8-2), newly initialised."""
    width, blocks = (int(number) for number in name[1:].split("-"))
    torch.manual_seed(seed)
    return _net(Block if name[0] == "R" else None, width, blocks)


def train(model: nn.Module, data: Data, steps: int, rate: float, seed: int) -> nn.Module:
    """SGD with momentum for so many steps, the rate falling to zero along a cosine."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(data.train), generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(data.train[chosen]), data.train_labels[chosen]))
        optimizer.step()
        schedule.step()
    return model.eval()


def accuracy(model: nn.Module, data: Data) -> float:
    """The share of test images it classifies as labelled."""
    model.eval()
    with torch.inference_mode():
        guesses = torch.cat([model(images).argmax(1) for images in torch.split(data.test, 500)])
    return (guesses == data.test_labels).double().mean().item()


def spread(values: tuple[float, ...] | list[float]) -> str:
    """Mean ± standard deviation, in percent."""
    return f"{100 * mean(values):.1f} ± {100 * (stdev(values) if len(values) > 1 else 0):.1f}"
