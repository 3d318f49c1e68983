"""Describing leaves no trace: not on the process, not on what other threads draw."""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.describe import study
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.trials import Labelled, TorchTrial, labelled

Draw = Callable[[], float]
DRAWS: tuple[Draw, ...] = (
    random.random,
    lambda: float(np.random.random()),
    lambda: float(torch.rand(())),
)


class Stochastic(nn.Module):
    """Draws in evaluation mode, and runs for real only."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(nn.functional.dropout(x)) * torch.rand(4)
        return y + torch.randn_like(y) if y.sum() > -1e9 else y


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def drawn_while(work: list[Callable[[], Any]], rounds: int = 60) -> list[list[float]]:
    """What a seeded thread draws while others work, until each has worked and enough was drawn."""
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    started, over = threading.Barrier(len(work) + 1), threading.Event()
    failed: list[BaseException] = []

    def loop(task: Callable[[], Any]) -> None:
        started.wait(60)
        try:
            while not over.is_set():
                task()
        except BaseException as problem:  # noqa: BLE001 (told below, in the thread of the test)
            failed.append(problem)

    threads = [threading.Thread(target=loop, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    started.wait(60)
    drawn: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        for numbers, draw in zip(drawn, DRAWS, strict=True):
            numbers.append(draw())
        over.wait(0.003)
    over.set()
    for thread in threads:
        thread.join(60)
    assert not failed
    return drawn


def test_threads_that_describe_disturb_nobody_who_draws() -> None:
    models = [attention(), Stochastic()]
    torch.manual_seed(7)
    expected = drawn_while([])
    assert drawn_while([lambda: describe(models[0]), lambda: describe(models[1])]) == expected
    assert len(set(expected[0])) == 60


def test_threads_that_describe_leave_the_fast_path_on() -> None:
    models = [attention(), attention()]
    switch: list[bool] = []

    def look() -> None:
        switch.append(torch.backends.mha.get_fastpath_enabled())

    drawn_while([lambda: describe(models[0]), lambda: study(models[1], real=True), look], rounds=30)
    look()
    assert all(switch)


def test_attention_comes_in_its_parts_also_for_real() -> None:
    model = attention()
    assert study(model, real=True).graph == study(model).graph


def test_a_model_that_draws_is_described_the_same_each_time() -> None:
    model = Stochastic()
    assert study(model, real=True).graph == study(model, real=True).graph


def test_threads_with_different_models_describe_each_as_it_is() -> None:
    models = [nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Dropout(), nn.Linear(n, 2)) for n in (3, 5)]
    expected = [describe(model) for model in models]
    found: list[list[Any]] = [[], []]
    drawn_while([lambda n=n: found[n].append(describe(models[n])) for n in (0, 1)], rounds=30)  # type: ignore[misc]
    for graphs, graph in zip(found, expected, strict=True):
        assert graphs
        assert all(each == graph for each in graphs)


def test_trials_in_threads_disturb_nobody_and_draw_the_same_numbers_at_the_same_step() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(), nn.Linear(64, 2))
    batch = Labelled(Inputs((torch.ones(8, 4),)), torch.zeros(8, dtype=torch.int64))
    losses: list[tuple[float, float]] = []

    def race() -> None:
        trial = TorchTrial(model, {}, nn.functional.cross_entropy, None)
        losses.append((trial.step(batch), trial.step(batch)))

    expected = drawn_while([])
    assert drawn_while([race, race]) == expected
    assert len(losses) > 1
    assert len(set(losses)) == 1


def test_a_loader_that_shuffles_is_read_without_disturbing_who_draws() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.zeros(64))
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True)
    expected = drawn_while([])
    assert drawn_while([lambda: labelled(loader, 4)]) == expected
