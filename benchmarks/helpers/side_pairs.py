"""Real models in which two of a kind have room side by side, and what becomes of them there.

A child is built by the same constructor as its parents, with twice as many channels in every stage (or with
twice the width that the constructor asks for); so it has room for both, if there is room for two at all.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn

from benchmarks.helpers.catalogue import transformer
from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.errors import InvalidSetting

Make = Callable[[], nn.Module]
NO_ROOM = "no room"


def scaled(family: str, factor: float, **options: Any) -> nn.Module:
    """A network of pytorchcv with so many times the channels; `options` are its `get_` function's."""
    module: Any = importlib.import_module(f"pytorchcv.models.{family}")
    makes = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "_init_params")
    ]
    [network] = makes
    with mock.patch.object(module, network.__name__) as asked:
        getattr(module, f"get_{family}")(**options)
    arguments = {
        name: _times(value, factor) if "channels" in name else value
        for name, value in asked.call_args.kwargs.items()
    }
    model: nn.Module = network(**arguments)
    return model


def _times(value: Any, factor: float) -> Any:
    return (
        [_times(each, factor) for each in value] if isinstance(value, list | tuple) else int(value * factor)
    )


# pytorchcv's networks for CIFAR: the factor for a parent (that of the child is twice as much), and options.
TEN = {"num_classes": 10}
CIFAR: dict[str, tuple[str, float, dict[str, Any]]] = {
    "resnet20": ("resnet_cifar", 0.5, {**TEN, "blocks": 20, "bottleneck": False}),
    "resnet29 with bottlenecks": ("resnet_cifar", 0.5, {**TEN, "blocks": 29, "bottleneck": True}),
    "preresnet20": ("preresnet_cifar", 0.5, {**TEN, "blocks": 20, "bottleneck": False}),
    "preresnet29 with bottlenecks": ("preresnet_cifar", 0.5, {**TEN, "blocks": 29, "bottleneck": True}),
    "seresnet20": ("seresnet_cifar", 1, {**TEN, "blocks": 20, "bottleneck": False}),
    "sepreresnet20": ("sepreresnet_cifar", 1, {**TEN, "blocks": 20, "bottleneck": False}),
    "wrn16": ("wrn_cifar", 0.5, {**TEN, "blocks": 16, "width_factor": 1}),
    "densenet22": ("densenet_cifar", 0.5, {**TEN, "blocks": 22, "growth_rate": 12, "bottleneck": False}),
    "densenet22 with bottlenecks": (
        "densenet_cifar",
        0.5,
        {**TEN, "blocks": 22, "growth_rate": 12, "bottleneck": True},
    ),
    "xdensenet22": ("xdensenet_cifar", 0.5, {**TEN, "blocks": 22, "growth_rate": 24, "bottleneck": True}),
    "pyramidnet20": ("pyramidnet_cifar", 1, {**TEN, "blocks": 20, "alpha": 48, "bottleneck": False}),
    "pyramidnet29 with bottlenecks": (
        "pyramidnet_cifar",
        1,
        {**TEN, "blocks": 29, "alpha": 24, "bottleneck": True},
    ),
    "diaresnet20": ("diaresnet_cifar", 1, {**TEN, "blocks": 20, "bottleneck": False}),
    "diapreresnet20": ("diapreresnet_cifar", 1, {**TEN, "blocks": 20, "bottleneck": False}),
    "shakeshakeresnet20": (
        "shakeshakeresnet_cifar",
        0.5,
        {"classes": 10, "blocks": 20, "bottleneck": False},
    ),
    "shakedropresnet20": ("shakedropresnet_cifar", 0.5, {"classes": 10, "blocks": 20, "bottleneck": False}),
    "resdropresnet20": ("resdropresnet_cifar", 0.5, {"classes": 10, "blocks": 20, "bottleneck": False}),
    "ror20": ("ror_cifar", 0.5, {**TEN, "blocks": 20}),
    "rir": ("rir_cifar", 0.25, {**TEN}),
    "nin": ("nin_cifar", 0.25, {**TEN}),
    "fractalnet": ("fractalnet_cifar", 0.125, {**TEN}),
    "wrn20 of one bit": ("wrn1bit_cifar", 0.5, {**TEN, "blocks": 20, "width_factor": 1}),
    "msdnet22": ("msdnet_cifar10", 1, {"blocks": 22}),
}


def _shuffle(width: int) -> nn.Module:
    """A ShuffleNet whose channels can be halved again and again, as its shuffles do."""
    from pytorchcv.models.shufflenetv2b import ShuffleNetV2b

    stages = [[width << stage] * 3 for stage in (1, 2, 3)]
    model: nn.Module = ShuffleNetV2b(stages, width, 8 * width)
    return model


def _wide(family: str, width: int, **options: Any) -> nn.Module:
    """A tiny transformer of so many units, in heads of eight."""
    names = {"gpt2": ("n_embd", "n_head", "n_inner")}.get(
        family, ("hidden_size", "num_attention_heads", "intermediate_size")
    )
    sizes = dict(zip(names, (width, width // 8, 2 * width), strict=True))
    if family == "llama":
        sizes["num_key_value_heads"] = width // 16
    return transformer(family, **{**sizes, **options})


NEXT = {**TEN, "blocks": 20}
# name -> the parents, and the child
SIDE_BY_SIDE: dict[str, tuple[Sequence[Make], Make]] = {
    **{
        f"{name}, twice": (
            [partial(scaled, family, factor, **options)] * 2,
            partial(scaled, family, 2 * factor, **options),
        )
        for name, (family, factor, options) in CIFAR.items()
    },
    "resnext20, twice as many groups": (
        [partial(scaled, "resnext_cifar", 0.25, **NEXT, cardinality=4, bottleneck_width=32)] * 2,
        partial(scaled, "resnext_cifar", 0.5, **NEXT, cardinality=8, bottleneck_width=16),
    ),
    "resnext20, groups twice as wide": (
        [partial(scaled, "resnext_cifar", 0.25, **NEXT, cardinality=4, bottleneck_width=32)] * 2,
        partial(scaled, "resnext_cifar", 0.5, **NEXT, cardinality=4, bottleneck_width=32),
    ),
    "resnet20 and resnet32 in resnet32": (
        [partial(scaled, "resnet_cifar", 0.5, **TEN, blocks=blocks, bottleneck=False) for blocks in (20, 32)],
        partial(scaled, "resnet_cifar", 1, **TEN, blocks=32, bottleneck=False),
    ),
    "preresnet20 and preresnet32 in preresnet38": (
        [
            partial(scaled, "preresnet_cifar", 0.5, **TEN, blocks=blocks, bottleneck=False)
            for blocks in (20, 32)
        ],
        partial(scaled, "preresnet_cifar", 1, **TEN, blocks=38, bottleneck=False),
    ),
    "resnet20, three times": (
        [partial(scaled, "resnet_cifar", 0.5, **TEN, blocks=20, bottleneck=False)] * 3,
        partial(scaled, "resnet_cifar", 1.5, **TEN, blocks=20, bottleneck=False),
    ),
    "resnet20 of 8 and of 16 in one of 32": (
        [partial(scaled, "resnet_cifar", factor, **TEN, blocks=20, bottleneck=False) for factor in (0.5, 1)],
        partial(scaled, "resnet_cifar", 2, **TEN, blocks=20, bottleneck=False),
    ),
    **{
        f"{name}, twice": (
            [partial(scaled, name, factor, **more)] * 2,
            partial(scaled, name, 2 * factor, **more),
        )
        for name, factor, more in (
            ("mobilenet", 0.5, {"width_scale": 1.0}),
            ("mobilenetv2", 0.5, {"width_scale": 1.0}),
            ("mobilenetv3", 1, {"version": "small", "width_scale": 1.0}),
            ("mnasnet", 0.5, {"version": "small", "width_scale": 1.0}),
            ("efficientnet", 0.5, {"version": "b0", "in_size": (224, 224)}),
            ("igcv3", 0.5, {"width_scale": 1.0}),
            ("ghostnet", 1, {"width_scale": 1.0}),
            ("shufflenet", 1, {"groups": 8, "width_scale": 1.0}),
            ("squeezenet", 0.5, {"version": "1.1"}),
            ("condensenet", 1, {"num_layers": 74, "groups": 4}),
        )
    },
    "shufflenetv2b, twice": ([partial(_shuffle, 32)] * 2, partial(_shuffle, 64)),
    **{
        f"{name}, twice": ([partial(_wide, name, 32)] * 2, partial(_wide, name, 64))
        for name in ("gpt2", "llama", "bert", "vit")
    },
}

# Where the constructor, or what the network computes, leaves no way to the mean.
WHY_NOT = {
    "rir, twice": "a batch norm after the head",
    "nin, twice": "a rectifier after the head, before the mean over places",
    "squeezenet, twice": "a rectifier after the head, before the mean over places",
    "pyramidnet20, twice": "shortcuts are padded with zeros, which are not shared out",
    "pyramidnet29 with bottlenecks, twice": "shortcuts are padded with zeros, which are not shared out",
    "wrn20 of one bit, twice": "weights are signs, times a number that depends on how many are read",
    "msdnet22, twice": "its classifiers are 128 wide, whatever the width",
    "condensenet, twice": "channels are picked by an index, which nobody shares out",
    "shufflenet, twice": "groups and shuffles divide the wider stages otherwise",
    "mobilenetv3, twice": "squeezes are rounded to eights: 64 is not twice what half has",
    "gpt2, twice": "a layer norm is over both",
    "llama, twice": "a norm is over both",
    "bert, twice": "a layer norm is over both",
    "vit, twice": "a layer norm is over both",
    "bert in Keras, twice": "two heads, whatever the width: parents meet in them",
}


def measure_side_by_side(name: str) -> dict[str, Any]:
    """One row: what was promised of several parents in one child, and what was found."""
    makers, make_child = SIDE_BY_SIDE[name]
    parents = []
    for seed, make in enumerate(makers):
        torch.manual_seed(seed)
        parent = make().eval().double()
        randomise(parent, seed)
        parents.append(parent)
    child = make_child().eval().double()
    try:
        report = transfer(parents, child, verify=True, frozen="replace")  # masks are weights as any other
    except InvalidSetting:
        return {"pair": name, "exact": False, "plan": NO_ROOM, "difference": None, "doubts": []}
    plan = "exact" if report.exact else report.plan.doubts[0]
    doubts = list(report.plan.doubts)
    return {
        "pair": name,
        "exact": report.exact,
        "plan": plan,
        "difference": report.difference,
        "doubts": doubts,
    }
