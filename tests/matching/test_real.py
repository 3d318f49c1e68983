"""The laws again, on networks as libraries write them."""

import random

import pytest

from benchmarks.helpers.catalogue import build
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.matching import Index, Match, align, prepare
from tests.helpers import generated as net

NAMES = """resnet20_cifar10 resnet56_cifar10 seresnet20_cifar10 preresnet20_cifar10
densenet40_k12_bc_cifar10 shakeshakeresnet20_2x16d_cifar10 ror3_56_cifar10 mobilenet_wd4
hrnet_w18_small_v1 darts bert gpt2 vit""".split()


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    return {name: describe(build(name, meta=True)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_is_the_same(graphs: dict[str, Graph], name: str) -> None:
    graph = graphs[name]
    twin, order = net.shuffled(graph, random.Random(name))
    alignment = align(graph, twin)
    assert alignment.similarity == 1.0
    assert not alignment.skipped_child
    back = {c: p for p, c in alignment.pairs}
    for c, layer in enumerate(twin.layers):
        assert sorted(back[e.source] for e in layer.inputs) == sorted(
            e.source for e in graph.layers[back[c]].inputs
        )
        assert graph.layers[back[c]].kind == graph.layers[order[c]].kind


def test_deeper_networks_take_all_of_shallower_ones(graphs: dict[str, Graph]) -> None:
    alignment = align(graphs["resnet20_cifar10"], graphs["resnet56_cifar10"])
    assert not alignment.skipped_parent
    assert align(graphs["resnet20_cifar10"], graphs["seresnet20_cifar10"]).skipped_parent == ()


def test_a_search_over_real_networks_equals_a_full_scan(graphs: dict[str, Graph]) -> None:
    models = {name: prepare(graph) for name, graph in graphs.items()}
    index = Index(threads=2)
    for key, model in enumerate(models.values()):
        index.add(key, model)
    for child in models.values():
        result = index.search(child, buckets=10)
        every = [Match(key, align(model, child).similarity) for key, model in enumerate(models.values())]
        assert result.matches == tuple(sorted(every, key=lambda match: (-match.similarity, match.key)))
        assert index.search(child).matches[0].similarity == 1.0
