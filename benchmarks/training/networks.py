"""Small networks for pictures: those of imgclsmob made slim, plain ones, and the cells of NAS-Bench-201.

    build({"kind": "resnet", "width": 8, "depth": 1}, classes=10, seed=0)

A network is made from a spec, a plain dictionary, so that a record of a run says what was trained. All take
pictures of 14 by 14, and none takes more than some tens of milliseconds a step on one core.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Spec = dict[str, Any]
SIDE = 14  # pictures are 28 by 28, averaged over squares of four


def build(spec: Spec, classes: int, seed: int) -> nn.Module:
    """A network, newly initialised."""
    torch.manual_seed(seed)
    options = {key: value for key, value in spec.items() if key != "kind"}
    model: Any = KINDS[spec["kind"]](classes=classes, **options)
    model.in_size = (SIDE, SIDE)  # imgclsmob's way of saying what a network takes
    return model.to(memory_format=torch.channels_last)  # type: ignore[no-any-return]


# -- imgclsmob, slim ----------------------------------------------------------------------------------


def _stages(width: int, depth: int) -> list[list[int]]:
    return [[width << stage] * depth for stage in range(3)]


def _slim(model: Any) -> nn.Module:
    """For pictures this small: no stride in the first layer, and whatever is left is averaged."""
    model.features.final_pool = nn.AdaptiveAvgPool2d(1)
    for module in model.features.init_block.modules():
        if isinstance(module, nn.Conv2d):
            module.stride = (1, 1)
    return model  # type: ignore[no-any-return]


def _resnet(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.resnet_cifar import CIFARResNet

    return _slim(CIFARResNet(_stages(width, depth), width, False, 1, num_classes=classes))


def _preresnet(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.preresnet_cifar import CIFARPreResNet

    return _slim(CIFARPreResNet(_stages(width, depth), width, False, 1, num_classes=classes))


def _seresnet(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.seresnet_cifar import CIFARSEResNet

    return _slim(CIFARSEResNet(_stages(width, depth), width, False, 1, num_classes=classes))


def _wrn(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.wrn_cifar import CIFARWRN

    return _slim(CIFARWRN(_stages(width, depth), width // 2, 1, num_classes=classes))


def _resnext(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.resnext_cifar import CIFARResNeXt

    stages = _stages(2 * width, depth)
    return _slim(CIFARResNeXt(stages, width, 4, width // 4 * 8, 1, num_classes=classes))


def _densenet(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.densenet_cifar import CIFARDenseNet

    channels, last = [], 2 * width
    for stage in range(3):
        last = last // 2 if stage else last
        channels.append([last + width * number for number in range(1, depth + 1)])
        last = channels[-1][-1]
    return _slim(CIFARDenseNet(channels, 2 * width, False, 0.0, 1, num_classes=classes))


def _mobilenet(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.mobilenet import MobileNet

    stages = [[width], *([width << stage] * depth for stage in (1, 2))]
    return _slim(MobileNet(stages, True, in_channels=1, num_classes=classes))


def _shufflenet(width: int, depth: int, classes: int) -> nn.Module:
    from pytorchcv.models.shufflenetv2b import ShuffleNetV2b

    stages = [[width << stage] * (depth + 1) for stage in (1, 2)]
    model: Any = ShuffleNetV2b(stages, width, 4 * width, in_channels=1, num_classes=classes)
    model.features.init_block.pool = nn.Identity()
    return _slim(model)


class _Plain(nn.Module):
    """Convolutions, and a maximum after each stage."""

    def __init__(self, genes: list[int], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        last, stages = 1, len(genes) // 2
        for stage, (out, depth) in enumerate(zip(genes[:stages], genes[stages:], strict=True)):
            for _ in range(depth):
                layers += [nn.Conv2d(last, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
                last = out
            layers.append(nn.MaxPool2d(2) if stage < stages - 1 else nn.AdaptiveAvgPool2d(1))
        self.features = nn.Sequential(*layers)
        self.output = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        found: Tensor = self.output(self.features(x).flatten(1))
        return found


def _vgg(width: int, depth: int, classes: int) -> nn.Module:
    return _Plain([width, 2 * width, 4 * width, depth, depth, depth], classes)


# -- NAS-Bench-201 ------------------------------------------------------------------------------------


def _convolution(width: int, kernel: int) -> nn.Module:
    return nn.Sequential(
        nn.ReLU(), nn.Conv2d(width, width, kernel, 1, kernel // 2, bias=False), nn.BatchNorm2d(width)
    )


EDGES = tuple((source, target) for target in range(1, 4) for source in range(target))
OPERATIONS: dict[str, Callable[[int], nn.Module]] = {
    "skip": lambda width: nn.Identity(),
    "conv1": lambda width: _convolution(width, 1),
    "conv3": lambda width: _convolution(width, 3),
    "pool": lambda width: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
}


class _Cell(nn.Module):
    """Four nodes; an operation on each of the six edges between them; a node sums what arrives."""

    def __init__(self, operations: list[str], width: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(OPERATIONS[each](width) for each in operations if each != "none")
        ways = [way for way, each in zip(EDGES, operations, strict=True) if each != "none"]
        self.into = [[(n, way[0]) for n, way in enumerate(ways) if way[1] == node] for node in (1, 2, 3)]

    def forward(self, x: Tensor) -> Tensor:
        """The last node."""
        nodes = [x]
        for into in self.into:
            first, *others = [self.edges[number](nodes[source]) for number, source in into]
            nodes.append(sum(others, first))
        return nodes[-1]


class _Reduction(nn.Module):
    """A residual block that halves the side and doubles the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        out = 2 * width
        self.body = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, out, 3, 2, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, 2, ceil_mode=True), nn.Conv2d(width, out, 1, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        found: Tensor = self.body(x) + self.shortcut(x)
        return found


class _CellNetwork(nn.Module):
    """A stem, two stages of cells with a reduction between them, a head."""

    def __init__(self, cell: list[str], classes: int, width: int = 8, stages: int = 2) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        cells: list[nn.Module] = [_Cell(cell, width)]
        for _ in range(1, stages):
            cells += [_Reduction(width), _Cell(cell, 2 * width)]
            width *= 2
        self.cells = nn.Sequential(*cells)
        self.norm = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        found: Tensor = self.output(self.norm(self.cells(self.stem(x))).flatten(1))
        return found


def connected(cell: list[str]) -> bool:
    """Does every node of a cell receive something?"""
    return all(
        any(op != "none" for (_, to), op in zip(EDGES, cell, strict=True) if to == node) for node in (1, 2, 3)
    )


KINDS: dict[str, Callable[..., nn.Module]] = {
    "resnet": _resnet,
    "preresnet": _preresnet,
    "seresnet": _seresnet,
    "wrn": _wrn,
    "resnext": _resnext,
    "densenet": _densenet,
    "mobilenet": _mobilenet,
    "shufflenet": _shufflenet,
    "vgg": _vgg,
    "plain": _Plain,
    "cell": _CellNetwork,
}
