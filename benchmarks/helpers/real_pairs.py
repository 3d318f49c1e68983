"""Pairs of real models of which the one contains the other, and what a transfer between two of them does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.helpers.catalogue import transformer
from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer

Make = Callable[[], nn.Module]


def resnet(width: int, blocks: int) -> nn.Module:
    """A ResNet for small images: three stages of so many blocks, the first so wide."""
    from pytorchcv.models.resnet_cifar import CIFARResNet

    channels = [[width * by] * blocks for by in (1, 2, 4)]
    model: nn.Module = CIFARResNet(
        channels=channels, init_block_channels=width, bottleneck=False, num_classes=10
    )
    return model


def of(family: str, **options: Any) -> nn.Module:
    """A network of pytorchcv, by the name of its module and its constructor's arguments."""
    from importlib import import_module

    module = import_module(f"pytorchcv.models.{family}")
    model: nn.Module = getattr(module, f"get_{family}")(**options)
    return model


CIFAR = {"num_classes": 10}
DENSE = {**CIFAR, "bottleneck": False}
HEADS = {"num_attention_heads": 8, "intermediate_size": 96}
HALF_MORE = {"hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 96}  # no multiple of 32

# name -> parent, child, and whether the child contains the parent
PAIRS: dict[str, tuple[Make, Make, bool]] = {
    "resnet20 16 to 24 wide": (lambda: resnet(16, 3), lambda: resnet(24, 3), True),
    "resnet20 16 to 64 wide": (lambda: resnet(16, 3), lambda: resnet(64, 3), True),
    "resnet20 to resnet56": (lambda: resnet(16, 3), lambda: resnet(16, 9), True),
    "resnet20 to resnet32, 16 to 24 wide": (lambda: resnet(16, 3), lambda: resnet(24, 5), True),
    "resnet20 32 to 16 wide": (lambda: resnet(32, 3), lambda: resnet(16, 3), False),
    "resnet32 to resnet20": (lambda: resnet(16, 5), lambda: resnet(16, 3), False),
    "resnet18 to resnet34": (lambda: of("resnet", blocks=18), lambda: of("resnet", blocks=34), True),
    "preresnet18 to preresnet34": (
        lambda: of("preresnet", blocks=18),
        lambda: of("preresnet", blocks=34),
        True,
    ),
    "seresnet18 to seresnet34": (lambda: of("seresnet", blocks=18), lambda: of("seresnet", blocks=34), True),
    "wrn16 2 to 3 wide": (
        lambda: of("wrn_cifar", blocks=16, width_factor=2, **CIFAR),
        lambda: of("wrn_cifar", blocks=16, width_factor=3, **CIFAR),
        True,
    ),
    "wrn16 to wrn28": (
        lambda: of("wrn_cifar", blocks=16, width_factor=2, **CIFAR),
        lambda: of("wrn_cifar", blocks=28, width_factor=2, **CIFAR),
        True,
    ),
    "densenet40 growth 12 to 24": (
        lambda: of("densenet_cifar", blocks=40, growth_rate=12, **DENSE),
        lambda: of("densenet_cifar", blocks=40, growth_rate=24, **DENSE),
        True,
    ),
    "densenet40 to densenet52": (
        lambda: of("densenet_cifar", blocks=40, growth_rate=12, **DENSE),
        lambda: of("densenet_cifar", blocks=52, growth_rate=12, **DENSE),
        True,
    ),
    "mobilenet 0.5 to 1 wide": (
        lambda: of("mobilenet", width_scale=0.5),
        lambda: of("mobilenet", width_scale=1.0),
        True,
    ),
    "mobilenetv2 0.5 to 1 wide": (
        lambda: of("mobilenetv2", width_scale=0.5),
        lambda: of("mobilenetv2", width_scale=1.0),
        True,
    ),
    "gpt2 wider": (lambda: transformer("gpt2"), lambda: transformer("gpt2", n_embd=64, n_head=8), True),
    "gpt2 deeper": (lambda: transformer("gpt2"), lambda: transformer("gpt2", n_layer=4), True),
    "llama wider": (
        lambda: transformer("llama"),
        lambda: transformer("llama", hidden_size=64, num_key_value_heads=4, **HEADS),
        True,
    ),
    "llama deeper": (lambda: transformer("llama"), lambda: transformer("llama", num_hidden_layers=4), True),
    "bert wider": (lambda: transformer("bert"), lambda: transformer("bert", hidden_size=64, **HEADS), True),
    "bert deeper": (lambda: transformer("bert"), lambda: transformer("bert", num_hidden_layers=4), True),
    "vit wider": (lambda: transformer("vit"), lambda: transformer("vit", hidden_size=64, **HEADS), True),
    "vit deeper": (lambda: transformer("vit"), lambda: transformer("vit", num_hidden_layers=4), True),
    "t5 deeper": (lambda: transformer("t5"), lambda: transformer("t5", num_layers=4), True),
    "gpt2 32 to 48 wide": (
        lambda: transformer("gpt2"),
        lambda: transformer("gpt2", n_embd=48, n_head=6),
        True,
    ),
    "gpt2 32 to 48 wide and deeper": (
        lambda: transformer("gpt2"),
        lambda: transformer("gpt2", n_embd=48, n_head=6, n_layer=4),
        True,
    ),
    "llama 32 to 48 wide": (
        lambda: transformer("llama"),
        lambda: transformer("llama", num_key_value_heads=3, **HALF_MORE),
        True,
    ),
    "vit 32 to 48 wide": (lambda: transformer("vit"), lambda: transformer("vit", **HALF_MORE), True),
    "gpt2 with heads 8 to 12 wide": (
        lambda: transformer("gpt2"),
        lambda: transformer("gpt2", n_embd=48),
        True,
    ),
    "bert with heads 8 to 16 wide": (
        lambda: transformer("bert"),
        lambda: transformer("bert", hidden_size=64),
        True,
    ),
    "t5 with keys 8 to 12 wide": (lambda: transformer("t5"), lambda: transformer("t5", d_kv=12), True),
    # Rotary positions turn each unit by its place among all of them.
    "llama with heads 8 to 16 wide": (
        lambda: transformer("llama"),
        lambda: transformer("llama", head_dim=16),
        False,
    ),
    # Norms behind the sums: what runs into the next one is not made by sums alone.
    "bert 32 to 48 wide": (lambda: transformer("bert"), lambda: transformer("bert", **HALF_MORE), False),
    "vgg11 to vgg16": (lambda: of("vgg", blocks=11), lambda: of("vgg", blocks=16), True),
}


def measure(name: str) -> dict[str, Any]:
    """One row: what was promised, what was found."""
    make_parent, make_child, contains = PAIRS[name]
    torch.manual_seed(0)
    parent, child = make_parent().eval().double(), make_child().eval().double()
    randomise(parent)
    report = transfer(parent, child, verify=True)
    return {
        "pair": name,
        "contains": contains,
        "similarity": round(report.similarity, 3),
        "exact": report.exact,
        "difference": report.difference,
        "summary": {action: row["percent"] for action, row in report.plan.summary().items()},
        "doubts": list(report.plan.doubts)[:3],
    }
