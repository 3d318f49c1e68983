"""A sample of real architectures, as `make architectures` does them all."""

import pytest
import torch

from benchmarks.helpers.catalogue import TRANSFORMERS, build, classifiers
from benchmarks.helpers.described import kind_of, measure
from benchmarks.helpers.permutation import difference, permute, randomise
from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.behaviour import run_on_random
from modelkeeper.graph import to_json, walk

SAMPLE = """resnet20_cifar10 preresnet20_cifar10 seresnet20_cifar10 resnext20_16x4d_cifar10
    densenet40_k12_cifar10 xdensenet40_2_k24_bc_cifar10 shakeshakeresnet20_2x16d_cifar10
    diaresnet20_cifar10 fractalnet_cifar10 rir_cifar10 mobilenetv3_small_w1 shufflenetv2_wd2
    squeezenet_v1_1 channelnet condensenet74_c4_g4 ghostnet revnet38""".split()


# Units that are transformed as a sequence: by Fourier (fnet), by a convolution over channels (channelnet).
OPAQUE = {"fnet", "channelnet"}


def test_there_are_enough_names() -> None:
    assert len(classifiers()) >= 500
    assert len(TRANSFORMERS) >= 28


@pytest.mark.filterwarnings("ignore")  # of the libraries that build the models
@pytest.mark.parametrize("name", [*SAMPLE, *TRANSFORMERS])
def test_real_architectures_are_described_and_their_spaces_are_true(name: str) -> None:
    model = build(name).double()
    randomise(model)
    inputs, before = run_on_random(model)
    graph = describe(model, inputs)
    axes = [kind_of(axis, graph) for _, tensor, axis in walk(graph) if not tensor.buffer and tensor.live]
    assert name in OPAQUE or axes.count("opaque") <= 0.03 * len(axes)
    assert permute(model, graph) >= 1
    _, after = run_on_random(model, inputs)
    assert difference(before, after) < 1e-5  # some compute in single precision, whatever they are given


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bert", "gpt2", "vit", "t5", "wav2vec2"])
def test_inputs_are_found_for_hugging_face_models(name: str) -> None:
    row = measure(name)
    assert row["described"], row
    assert row["compressed"] < 20_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_deepest_classifier_stays_below_a_megabyte() -> None:
    with torch.device("meta"):
        model = build("diapreresnet1202_cifar10")
    assert len(to_json(describe(model))) < 1_000_000
