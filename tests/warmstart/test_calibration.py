"""Calibration: what is exact stays, what is not comes closer, and bad data never makes bad weights."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.helpers.catalogue import transformer
from benchmarks.helpers.permutation import randomise
from modelkeeper import Report, transfer
from modelkeeper.errors import CannotCalibrate, InvalidSetting
from modelkeeper.frontends.torch import describe, read, record_program
from tests.helpers.networks import (
    BLOCKS,
    PackedAttention,
    Residual,
    SeparateAttention,
    TiedLanguageModel,
    network,
)

IMAGES = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LONG = 1_000.0  # seconds: no budget, so that a busy machine gives the same results
Blueprint = list[tuple[str, int]]
blueprints = st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(3, 6)), min_size=1, max_size=3)


def random_net(width: int, kinds: Blueprint, seed: int, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    model = network(width, kinds, classes).eval()
    randomise(model, seed)
    return model


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def finite(model: nn.Module) -> bool:
    return all(
        torch.isfinite(tensor).all() for tensor in model.state_dict().values() if tensor.is_floating_point()
    )


class Plain(nn.Sequential):
    """Strided and padded convolutions, with and without norms and biases, and a head."""

    def __init__(self, width: int, classes: int = 3) -> None:
        super().__init__(
            nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, classes),
        )


# -- laws -------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(blueprints, st.integers(0, 3), st.integers(0, 3))
def test_where_the_plan_is_exact_nothing_is_calibrated(kinds: Blueprint, more: int, seed: int) -> None:
    parent = random_net(4, kinds, seed)
    plain, child = (random_net(4 + more, kinds, 9) for _ in range(2))
    transfer(parent, plain, IMAGES[:2])
    report = transfer(parent, child, calibrate=IMAGES)
    assert report.exact
    assert report.calibration is None
    assert all(torch.equal(child.state_dict()[name], tensor) for name, tensor in plain.state_dict().items())


@settings(max_examples=10)
@given(blueprints, st.integers(0, 3))
def test_a_calibrated_child_is_never_further_from_its_parent_on_held_out_examples(
    kinds: Blueprint, seed: int
) -> None:
    parent = random_net(6, kinds, seed)
    plain, child = (random_net(3, [(kind, 3) for kind, _ in kinds], 9) for _ in range(2))
    transfer(parent, plain, IMAGES[:2])
    report = transfer(parent, child, calibrate=IMAGES, seconds=LONG)
    found = report.calibration
    assert found is not None
    assert finite(child)
    assert found.calibrated < found.plain or not found.kept
    assert found.kept == (not found.why)
    if not found.kept:
        assert all(
            torch.equal(child.state_dict()[name], tensor) for name, tensor in plain.state_dict().items()
        )


@pytest.mark.parametrize("seed", [0, 1])
def test_what_was_widened_can_be_narrowed_again(seed: int) -> None:
    """The wide net computes what a narrow one can: calibration finds it, whichever units are copies."""
    torch.manual_seed(seed)
    small, wide, again = Plain(4), Plain(9), Plain(4)
    randomise(small, seed)
    assert transfer(small.eval(), wide.eval(), IMAGES[:2]).exact
    report = transfer(wide, again, calibrate=IMAGES, seconds=LONG)
    assert report.calibration is not None
    assert report.calibration.kept
    with torch.no_grad():
        wanted, found = wide(IMAGES), again.eval()(IMAGES)
    assert (wanted - found).square().sum() < 1e-3 * (wanted - wanted.mean(0)).square().sum()


def test_a_child_with_fewer_blocks_follows_the_end_of_the_last_block() -> None:
    kinds: Blueprint = [("residual", 4), ("residual", 4)]
    parent, child = random_net(5, kinds, 0), random_net(4, kinds[:1], 1)
    found = transfer(parent, child, calibrate=IMAGES, seconds=LONG).calibration
    assert found is not None
    sums = [layer.name for layer in describe(parent, IMAGES[:2]).layers if layer.kind == "add"]
    assert sums[-1] in {each.target for each in found.layers}
    assert found.calibrated <= found.plain


def test_a_child_that_stays_far_from_its_parent_keeps_the_plan() -> None:
    """Two units cannot tell what sixteen tell: what is fitted so badly would only hold training up."""

    def net(width: int) -> nn.Sequential:
        head = [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, 40)]
        return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), *head)

    torch.manual_seed(0)
    parent, child, plain = net(16).eval(), net(1), net(1)
    plain.load_state_dict(child.state_dict())
    transfer(parent, plain, IMAGES[:2])
    found = transfer(parent, child, calibrate=IMAGES, seconds=LONG).calibration
    assert found is not None
    assert not found.kept
    assert found.calibrated < found.plain
    assert "variance of the parent's outputs is not explained" in found.why
    assert all(torch.equal(child.state_dict()[name], value) for name, value in plain.state_dict().items())


def test_a_layer_that_does_what_its_lender_does_is_left_alone() -> None:
    """Up to where the blocks are missing all is as in the parent; only what comes behind has to make up."""
    kinds: Blueprint = [("residual", 4), ("residual", 4)]
    parent, child = random_net(5, kinds, 0), random_net(5, kinds[:1], 1)
    plain = random_net(5, kinds[:1], 1)
    transfer(parent, plain, IMAGES[:2])
    found = transfer(parent, child, calibrate=IMAGES, seconds=LONG).calibration
    assert found is not None
    how = [each.how for each in found.layers]
    assert how.count("fitted") == 1
    assert how[-1] == "fitted"
    changed = [
        n for n, tensor in plain.state_dict().items() if not torch.equal(child.state_dict()[n], tensor)
    ]
    assert {name.rpartition(".")[2] for name in changed} == {"weight", "bias"}
    assert len({name.rpartition(".")[0] for name in changed}) == 1


@pytest.mark.parametrize("kind", [Residual, PackedAttention, SeparateAttention, TiedLanguageModel])
def test_layers_of_every_kind_are_fitted_or_left_alone(kind: type[nn.Module]) -> None:
    from tests.helpers.networks import SCENARIOS

    torch.manual_seed(0)
    parent, child = kind().eval(), kind().eval()
    example = SCENARIOS[kind]
    with torch.no_grad():  # one layer more than the plan can be exact about: a parent of another task
        randomise(parent, 3)
    batches = example.repeat(16, *[1] * (example.ndim - 1))
    if batches.is_floating_point():
        batches = batches + torch.randn(batches.shape)
    transfer(parent, child, calibrate=batches, same_task=False, seconds=LONG)
    assert finite(child)


# -- data -------------------------------------------------------------------------------------------


def narrowed(batches: Any, **options: Any) -> tuple[nn.Module, Report]:
    torch.manual_seed(0)
    parent, child = Plain(8).eval(), Plain(4)
    randomise(parent, 0)
    return child, transfer(parent, child, calibrate=batches, seconds=LONG, **options)


def test_examples_come_in_many_forms() -> None:
    labels = torch.arange(64) % 3
    forms: dict[str, Callable[[], Any]] = {
        "a tensor": lambda: IMAGES,
        "tensors": lambda: list(IMAGES.split(16)),
        "one at a time": lambda: list(IMAGES.split(1)),
        "an iterator": lambda: iter(IMAGES.split(20)),
        "a loader": lambda: DataLoader(TensorDataset(IMAGES), batch_size=16),
        "names": lambda: [{"input": part} for part in IMAGES.split(16)],
    }
    states = [state(narrowed(make())[0]) for make in forms.values()]
    for other in states[1:]:
        assert all(torch.equal(states[0][name], tensor) for name, tensor in other.items())
    _, report = narrowed(list(zip(IMAGES.split(16), labels.split(16), strict=True)))
    assert report.calibration is not None
    assert "labels" in report.calibration.measure


def test_a_language_model_takes_its_batches_by_name() -> None:
    torch.manual_seed(0)
    parent, child = transformer("gpt2").eval(), transformer("gpt2", n_embd=16, n_head=2)
    tokens = torch.randint(0, 90, (48, 12))
    batches = [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in tokens.split(16)]
    found = transfer(parent, child, calibrate=batches, seconds=LONG).calibration
    assert found is not None
    assert found.kept
    assert found.fitted > 8
    assert finite(child)


def test_norms_that_are_written_out_are_fitted() -> None:
    """RMSNorm, as most language models have it: a product with a gain."""
    torch.manual_seed(0)
    parent = transformer("llama").eval()
    randomise(parent, 0)
    child = transformer("llama", hidden_size=16, num_attention_heads=2, num_key_value_heads=2)
    batches = {"input_ids": torch.randint(0, 90, (32, 8))}
    found = transfer(parent, child, calibrate=batches, seconds=LONG).calibration
    assert found is not None
    fitted = {each.layer for each in found.layers if each.how == "fitted"}
    assert "model.layers.0.input_layernorm" in fitted
    assert not any("rotary" in each.layer for each in found.layers)
    assert finite(child)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fit_is_divided_by_as_much_as_its_parent(seed: int) -> None:
    """Else a training step would move what it puts out further than it moves the parent's."""
    torch.manual_seed(seed)

    def net(width: int) -> nn.Sequential:
        second = nn.Conv2d(width, width, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)
        return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), *second, *head)

    parent, child = net(12), net(10)
    with torch.no_grad():
        for _ in range(60):
            parent(IMAGES)
    found = transfer(parent.eval(), child, calibrate=IMAGES, seconds=LONG).calibration
    assert found is not None
    assert found.kept
    assert found.layers[1].how == "fitted"
    theirs = parent.get_buffer("4.running_var")
    for ours in child.get_buffer("4.running_var"):
        assert torch.isclose(ours, theirs, rtol=1e-3).any()


BAD: dict[str, tuple[Any, str]] = {
    "nothing": ([], "0 examples"),
    "one example": (IMAGES[:1], "1 examples"),
    "NaN": (torch.where(IMAGES > 3, torch.nan, IMAGES), "NaN"),
    "infinities": (torch.cat([IMAGES, torch.full((1, 3, 8, 8), torch.inf)]), "1 of 65"),
    "no tensors": ([["cat", "dog"]], "no tensors"),
    "no batches": (7, "int"),
}


@pytest.mark.parametrize(("batches", "message"), BAD.values(), ids=BAD)
def test_examples_that_do_not_serve_are_refused_and_change_nothing(batches: Any, message: str) -> None:
    torch.manual_seed(0)
    parent, child = Plain(8).eval(), Plain(4)
    before = state(child)
    with pytest.raises(CannotCalibrate, match=message):
        transfer(parent, child, calibrate=batches)
    assert all(torch.equal(before[name], tensor) for name, tensor in child.state_dict().items())


ODD = {
    "few examples": IMAGES[:5],
    "the same example": IMAGES[:1].repeat(32, 1, 1, 1),
    "constant images": torch.ones(32, 3, 8, 8),
    "black images": torch.zeros(32, 3, 8, 8),
    "a dead channel": torch.cat([IMAGES[:, :2], torch.zeros(64, 1, 8, 8)], 1),
    "huge numbers": IMAGES * 1e15,
    "tiny numbers": IMAGES * 1e-20,
}


@pytest.mark.parametrize("batches", ODD.values(), ids=ODD)
def test_odd_examples_give_finite_weights(batches: Tensor) -> None:
    child, report = narrowed(batches)
    assert finite(child)
    found = report.calibration
    assert found is not None
    assert found.calibrated < found.plain or not found.kept


def test_dead_units_and_zero_weights_give_finite_weights() -> None:
    torch.manual_seed(0)
    parent, child = Plain(8).eval(), Plain(4)
    with torch.no_grad():
        for parameter in parent.parameters():
            parameter.zero_()
    transfer(parent, child, calibrate=IMAGES, seconds=LONG)
    assert finite(child)


@pytest.mark.parametrize("affine", [False, True])
def test_training_computes_what_the_layers_were_fitted_to(affine: bool) -> None:
    """By the statistics of a batch as by those that are stored: also in norms that were new."""

    def net(width: int, more: int) -> nn.Sequential:
        widths = [3, *[width] * (2 + more)]
        layers: list[nn.Module] = []
        for here, there in itertools.pairwise(widths):
            layers += [nn.Conv2d(here, there, 3, padding=1), nn.BatchNorm2d(there), nn.ReLU()]
        if more:
            layers.insert(3, nn.BatchNorm2d(width, affine=affine))
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))

    torch.manual_seed(0)
    parent, child = net(8, 0).eval(), net(5, 2)
    randomise(parent, 0)
    report = transfer(parent, child, calibrate=IMAGES, seconds=LONG)
    assert report.calibration is not None
    assert report.calibration.kept
    with torch.no_grad():
        stored, batch = child.eval()(IMAGES), child.train()(IMAGES)
    assert (stored - batch).square().sum() < 0.1 * (stored - stored.mean(0)).square().sum()


def test_a_map_of_another_size_is_followed_in_the_mean() -> None:
    """The parent halves its maps by a stride, rounding up; the child by a pooling, rounding down."""
    torch.manual_seed(0)
    tail = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    strided = nn.Conv2d(6, 8, 3, padding=1, stride=2)
    parent = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), strided, nn.BatchNorm2d(8), *tail, nn.Linear(8, 3)
    ).eval()
    randomise(parent, 0)
    pooled = [nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, padding=1), nn.BatchNorm2d(5)]
    child = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), *pooled, *tail, nn.Linear(5, 3))
    images = torch.randn(64, 3, 7, 7)
    report = transfer(parent, child, calibrate=images, seconds=LONG).calibration
    assert report is not None
    assert {each.layer: each.how for each in report.layers}["3"] == "fitted"


def test_examples_of_another_length_are_passed_over() -> None:
    _, report = narrowed([IMAGES[:32], IMAGES[:8, :, :6, :6], IMAGES[32:]])
    assert report.calibration is not None
    assert (report.calibration.examples, report.calibration.passed_over) == (64, 8)


# -- heads, programs, reports -----------------------------------------------------------------------


def test_a_head_for_other_classes_is_fitted_to_labels() -> None:
    torch.manual_seed(0)
    parent, child = Plain(8).eval(), Plain(8, classes=2)
    randomise(parent, 0)
    with torch.no_grad():
        labels = (parent(IMAGES)[:, 0] > parent(IMAGES)[:, 0].median()).long()
    report = transfer(parent, child, calibrate=IMAGES, labels=labels, seconds=LONG)
    assert report.calibration is not None
    assert report.calibration.layers[-1].target == "labels"
    with torch.no_grad():
        right = (child.eval()(IMAGES).argmax(1) == labels).float().mean()
    assert right > 0.75
    with pytest.raises(CannotCalibrate, match="head has 2"):
        transfer(parent, Plain(8, classes=2), calibrate=IMAGES, labels=labels + 5)


def test_a_program_serves_as_well_as_the_model_itself() -> None:
    torch.manual_seed(0)
    parent = Plain(8).eval()
    randomise(parent, 0)
    torch.manual_seed(1)
    first, second = Plain(4), Plain(4)
    second.load_state_dict(first.state_dict())
    transfer(parent, first, calibrate=IMAGES, seconds=LONG)
    graph, program = describe(parent, IMAGES[:2]), record_program(parent, IMAGES[:1])
    report = transfer(
        graph, second, weights=dict(read(parent)), program=program, calibrate=IMAGES, seconds=LONG
    )
    assert report.calibration is not None
    for name, tensor in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], tensor)


def test_the_report_tells_what_was_done_and_progress_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    child, report = narrowed(IMAGES, progress=lambda *news: told.append(news))
    assert told[0][:2] == (0, 3)
    assert told[-1] == (3, 3, "")
    assert child.training
    assert report.calibration is not None
    assert report.calibration.fitted >= 2
    assert report.calibration.seconds > 0
    assert "layers fitted" in str(report)
    narrowed(IMAGES, progress=True)


def test_perturbing_and_calibrating_exclude_each_other() -> None:
    with pytest.raises(InvalidSetting, match="shrink_perturb"):
        narrowed(IMAGES, shrink_perturb=(0.5, 0.2))


def test_little_memory_and_time_are_kept_to() -> None:
    _, report = narrowed(IMAGES, memory=50_000)
    assert report.calibration is not None
    assert report.calibration.examples < 64
    assert report.calibration.memory <= 50_000
    torch.manual_seed(0)
    child = Plain(4)
    found = transfer(Plain(8).eval(), child, calibrate=IMAGES, seconds=0.0).calibration
    assert found is not None
    assert {each.how for each in found.layers} == {"out of time"}
