"""The same networks as `written_in_keras`, as one writes them in PyTorch: each takes its width."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES, WORDS, LENGTH = 5, 11, 7


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, taken: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(taken, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.way = None
        if stride != 1 or taken != width:
            way = nn.Conv2d(taken, width, 1, stride, bias=False)
            self.way = nn.Sequential(way, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.way is None else self.way(x)
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)) + around)


def resnet(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 2 * width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, CLASSES),
    )


def vgg(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 9, 4 * width),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4 * width, CLASSES),
    )


def separable(taken: int, width: int, stride: int) -> list[nn.Module]:
    """A depthwise convolution and a pointwise one, each with its norm."""
    return [
        nn.Conv2d(taken, taken, 3, stride, 1, groups=taken, bias=False),
        nn.BatchNorm2d(taken),
        nn.ReLU6(),
        nn.Conv2d(taken, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU6(),
    ]


def mobilenet(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU6(),
        *separable(width, 2 * width, 1),
        *separable(2 * width, 2 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, CLASSES),
    )


class Attention(nn.Module):
    """Words look at each other, with two heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value)
        made: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return made


class Bert(nn.Module):
    """Words and their places, two blocks of an encoder, a head on the first word."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.ModuleList(Attention(width) for _ in range(2))
        self.norm1 = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.norm2 = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        x = self.norm(self.words(words) + self.places(torch.arange(LENGTH, device=words.device)))
        for n in range(2):
            x = self.norm1[n](x + self.attention[n](x))
            x = self.norm2[n](x + self.narrow[n](functional.gelu(self.wide[n](x))))
        made: Tensor = self.head(x[:, 0])
        return made


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "resnet": resnet,
    "vgg": vgg,
    "mobilenet": mobilenet,
    "bert": Bert,
}
