"""Real graphs to match, and zoos made of them.

graphs(names)          described once, then read from benchmarks/.cache
IMAGENET, TRANSFORMER  names beside pytorchcv's CIFAR models
twins()                one network as two libraries write it
shuffled(graph, rng)   the same network written in another order
repeats(graph)         the same network with other numbers of blocks
scaled(prepared, rng)  the same network with other widths
"""

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.helpers.catalogue import TRANSFORMERS, build, cifar_classifiers
from modelkeeper.errors import ModelKeeperError
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Edge, Graph, Layer, Tensor, consumers, from_json, to_json
from modelkeeper.graph.vocabulary import COMMUTATIVE
from modelkeeper.matching import Prepared
from modelkeeper.matching.similarity import LARGEST, MERGE, UNIT, WEIGHT_ROOTS, WEIGHT_SCALE

CACHE = Path(__file__).parents[1] / ".cache"

IMAGENET = """alexnet vgg11 vgg16 bn_vgg16 resnet10 resnet18 resnet34 resnet50 resnet50b resnet101 preresnet18
preresnet50 resnext50_32x4d seresnet18 seresnet50 senet28 resnesta18 bam_resnet50 cbam_resnet50
regnetx004 regnety004 densenet121 densenet169 dpn68 darknet53 dla34 dla60 hrnet_w18_small_v1
hrnet_w18_small_v2 vovnet39 hardnet68 squeezenet_v1_1 sqnxt23_w1 shufflenet_g1_w1 shufflenetv2_w1
menet128_8x1_g4 mobilenet_w1 mobilenet_wd4 mobilenetv2_w1 mobilenetv2b_w1 mobilenetv3_small_w1
mobilenetv3_large_w1 igcv3_w1 mnasnet_b1 darts proxylessnas_mobile xception inceptionv3 inceptionv4
inceptionresnetv1 polynet nasnet_4a1056 pnasnet5large spnasnet efficientnet_b0 efficientnet_b1 mixnet_s
fishnet99 bninception peleenet resattnet56 sknet50 scnet50 diracnet18v2 revnet38 bagnet17 ntsnet_cub
sparsenet121""".split()
TRANSFORMER = """bert distilbert albert electra convbert funnel gpt2 opt llama t5 bart vit swin convnext
segformer wav2vec2""".split()


def cifar() -> list[str]:
    """pytorchcv's CIFAR models, but for the ten of more than 1,000 layers."""
    return [name for name in cifar_classifiers() if "1001" not in name and "1202" not in name]


def graphs(names: Iterable[str]) -> dict[str, Graph]:
    """Graphs by name, those that can be described."""
    CACHE.mkdir(exist_ok=True)
    found = {}
    for name in names:
        path = CACHE / f"{name}.json"
        if not path.exists():
            try:
                path.write_bytes(to_json(_describe(partial(build, name, meta=True))))
            except (ModelKeeperError, RuntimeError, LookupError, ValueError) as problem:
                print(f"  {name}: not described ({str(problem)[:80]})")
                continue
        found[name] = from_json(path.read_bytes())
    return found


def twins() -> dict[str, tuple[Graph, Graph]]:
    """One network as pytorchcv and as transformers write it."""
    import transformers

    def hf(family: str, **settings: Any) -> Callable[[], nn.Module]:
        config = getattr(transformers, f"{family}Config")(num_labels=1000, **settings)
        model: Callable[..., nn.Module] = getattr(transformers, f"{family}ForImageClassification")
        return lambda: model(config).eval()

    def regnet(kind: str, depths: list[int], widths: list[int], groups: int) -> Callable[[], nn.Module]:
        return hf("RegNet", layer_type=kind, depths=depths, hidden_sizes=widths, groups_width=groups)

    small, large = [64, 128, 256, 512], [256, 512, 1024, 2048]
    made = {
        "resnet18": ("resnet18", hf("ResNet", depths=[2, 2, 2, 2], hidden_sizes=small, layer_type="basic")),
        "resnet50": (
            "resnet50b",
            hf("ResNet", depths=[3, 4, 6, 3], hidden_sizes=large, layer_type="bottleneck"),
        ),
        "mobilenet": ("mobilenet_w1", hf("MobileNetV1", tf_padding=False)),
        "mobilenetv2": ("mobilenetv2_w1", hf("MobileNetV2", tf_padding=False)),
        "regnetx004": ("regnetx004", regnet("x", [1, 2, 7, 12], [32, 64, 160, 384], 16)),
        "regnety004": ("regnety004", regnet("y", [1, 3, 6, 6], [48, 104, 208, 440], 8)),
        "efficientnet_b0": (
            "efficientnet_b0",
            hf("EfficientNet", width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280),
        ),
    }
    found = {}
    for name, (ours, theirs) in made.items():
        path = CACHE / f"hf-{name}.json"
        if not path.exists():
            path.write_bytes(to_json(_describe(theirs)))
        found[name] = graphs([ours])[ours], from_json(path.read_bytes())
    return found


def _describe(make: Callable[[], nn.Module]) -> Graph:
    torch.manual_seed(0)
    return describe(make())


def shuffled(graph: Graph, rng: random.Random) -> Graph:
    """The same network with its layers in another order and its merges written another way round."""
    behind = consumers(graph)
    waiting = [len({edge.source for edge in layer.inputs}) for layer in graph.layers]
    ready, place, layers = (
        [v for v, count in enumerate(waiting) if not count],
        dict[int, int](),
        list[Layer](),
    )
    while ready:
        v = ready.pop(rng.randrange(len(ready)))
        layer = graph.layers[v]
        inputs = [Edge(place[edge.source], edge.via) for edge in layer.inputs]
        if layer.kind in COMMUTATIVE:
            rng.shuffle(inputs)
        place[v] = len(layers)
        layers.append(Layer(layer.name, layer.kind, tuple(inputs), layer.tensors, layer.attributes))
        for w in behind[v]:
            waiting[w] -= 1
            if not waiting[w]:
                ready.append(w)
    return Graph(graph.framework, tuple(layers), graph.spaces)


def repeats(graph: Graph, rng: random.Random) -> Graph:
    """The same network with another number of blocks wherever a block comes several times in a row."""
    pieces, at = [], 0
    for start, length, count in _runs(graph):
        pieces += [range(at, start)] + [range(start, start + length)] * rng.randint(1, count + 2)
        at = start + length * count
    pieces.append(range(at, len(graph.layers)))
    layers: list[Layer] = []
    for piece in pieces:  # each takes its input from inside itself, or from the end of the piece before
        end, place = len(layers) - 1, {}
        for v in piece:
            layer = graph.layers[v]
            place[v] = len(layers)
            inputs = tuple(Edge(place.get(edge.source, end), edge.via) for edge in layer.inputs)
            tensors = tuple(
                Tensor(f"{len(layers)}.{t.name}", t.role, t.dtype, t.axes, t.trainable, t.buffer, t.live)
                for t in layer.tensors
            )
            layers.append(Layer(str(len(layers)), layer.kind, inputs, tensors, layer.attributes))
    return Graph(graph.framework, tuple(layers), graph.spaces)


def _runs(graph: Graph) -> list[tuple[int, int, int]]:
    """Blocks that come several times in a row: the first layer, layers in a block, how many blocks."""
    reach = list(range(len(graph.layers)))
    for v, layer in enumerate(graph.layers):
        for edge in layer.inputs:
            reach[edge.source] = max(reach[edge.source], v)
    far = max(v for v, layer in enumerate(graph.layers) if not layer.inputs)
    cuts = []
    for v in range(len(graph.layers)):
        if far <= v:
            cuts.append(v)
        far = max(far, reach[v])

    def block(low: int, high: int) -> object:
        return [
            (
                y.kind,
                sorted(y.attributes.items()),
                [t.shape for t in y.tensors],
                [(e.source - low, e.via) for e in y.inputs],
            )
            for y in graph.layers[low + 1 : high + 1]
        ]

    runs, i = [], 0
    while i + 2 < len(cuts):
        for step in range(1, 7):  # a block may hold several cuts
            count, first = 1, block(cuts[i], cuts[i + step]) if i + step < len(cuts) else None
            while i + step * (count + 1) < len(cuts) and first == block(
                cuts[i + step * count], cuts[i + step * (count + 1)]
            ):
                count += 1
            if count > 1:
                runs.append((cuts[i] + 1, cuts[i + step] - cuts[i], count))
                i += step * count
                break
        else:
            i += 1
    return runs


def scaled(model: Prepared, rng: np.random.Generator) -> Prepared:
    """The same network with other widths: every width times one factor, and a little of its own."""
    tokens = model.tokens.copy()
    factor = float(rng.choice([0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0]))
    spread = float(rng.choice([0.1, 0.2, 0.4]))
    sizes = np.unique(np.concatenate([tokens[:, 8:10].ravel(), tokens[:, 7]]))
    wide = sizes[sizes > 10]
    grown = np.maximum(
        8, np.rint(wide * factor * rng.uniform(1 - spread, 1 + spread, len(wide)) / 8) * 8
    ).astype(np.int64)
    for column in (7, 8, 9):
        at = np.searchsorted(wide, tokens[:, column])
        hit = (
            (at < len(wide)) & (wide[np.minimum(at, len(wide) - 1)] == tokens[:, column])
            if len(wide)
            else np.zeros(len(tokens), bool)
        )
        tokens[hit, column] = grown[at[hit]]
    tokens[:, 5] = np.where(
        model.tokens[:, 5] > MERGE, _weight(np.prod(tokens[:, 8:].astype(float), axis=1)), model.tokens[:, 5]
    )
    tokens[:, 6] = np.where(tokens[:, 6] > 0, _weight(2.0 * tokens[:, 7]), 0)
    weights = tokens[:, 5] + tokens[:, 6]
    total = int((weights * model.counts).sum()) + (
        model.total - int(((model.tokens[:, 5] + model.tokens[:, 6]) * model.counts).sum())
    )
    digest = hashlib.blake2b(model.fingerprint.encode() + tokens.tobytes(), digest_size=16).hexdigest()
    return replace(model, fingerprint=digest, tokens=tokens, total=total)


def _weight(parameters: Any) -> Any:
    root = parameters
    for _ in range(WEIGHT_ROOTS):
        root = np.sqrt(root)
    return np.clip((root * WEIGHT_SCALE * UNIT).astype(np.int64), MERGE, LARGEST // 2)


__all__ = [
    "IMAGENET",
    "TRANSFORMER",
    "TRANSFORMERS",
    "cifar",
    "graphs",
    "repeats",
    "scaled",
    "shuffled",
    "twins",
]
