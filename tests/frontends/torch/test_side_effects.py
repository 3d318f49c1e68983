"""Describing leaves no trace: not on the process, not on what other threads draw."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import torch
import transformers
from torch import Tensor, nn

from modelkeeper import ModelKeeperClient
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


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 2))


def test_autocast_is_off_while_a_model_is_described_and_on_again_afterwards() -> None:
    model = convolutional()
    expected = describe(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert describe(model) == expected
        assert study(model, real=True).graph.fingerprint == expected.fingerprint
        assert torch.is_autocast_enabled("cpu")
        assert model(torch.ones(1, 3, 32, 32)).dtype == torch.bfloat16


class Mixed(nn.Module):
    """Switches autocast on itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.body(x)


def test_a_model_with_autocast_of_its_own_is_described() -> None:
    described, plain = describe(Mixed()), describe(convolutional())
    assert [layer.kind for layer in described.layers] == [layer.kind for layer in plain.layers]


def test_models_that_accelerate_prepared_start_warm_and_are_registered(tmp_path: Path) -> None:
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=True)
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        for accuracy in (0.5, 0.6):
            prepared = accelerator.prepare(convolutional())
            forward = prepared.forward
            _, answer = client.query_for_model(prepared)
            record = client.register_model(prepared, {"accuracy": accuracy})
            assert prepared.forward == forward
        assert answer.exact
        assert record is not None
        assert record.parent == answer.parent


class Images(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"pixel_values": torch.full((3, 16, 16), float(number)), "labels": torch.tensor(number % 2)}


def vision_transformer(width: int) -> nn.Module:
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(hidden_size=width, image_size=16, patch_size=8, **sizes)
    return transformers.ViTForImageClassification(config)


def test_a_vision_transformer_in_a_bf16_trainer_starts_warm_and_is_registered(tmp_path: Path) -> None:
    answers = []

    class Keep(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **given: Any) -> None:
            answers.append(client.query_for_model(given["model"])[1])

        def on_train_end(self, *_: Any, **given: Any) -> None:
            client.register_model(given["model"], {"accuracy": 0.5})

    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=1, bf16=True, use_cpu=True, report_to=[], disable_tqdm=True
    )
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        for width in (16, 24):
            trainer = transformers.Trainer(
                vision_transformer(width), arguments, train_dataset=Images(), callbacks=[Keep()]
            )
            trainer.train()
        assert [answer.cold for answer in answers] == [True, False]
        assert len(client.coordinator.models()) == 2
