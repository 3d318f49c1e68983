"""Which tensors are frozen, and that they are left alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from modelkeeper import ModelKeeperClient, transfer
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidSetting
from modelkeeper.frontends.torch import FRONTEND
from modelkeeper.frontends.torch.frozen import frozen
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings

META = {"data": "d", "task": "t"}


def net(seed: int, width: int = 8) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(), nn.Linear(width * 36, 4)
    )


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def trained(seed: int, width: int = 8) -> nn.Sequential:
    model = net(seed, width)
    with torch.no_grad():
        for _ in range(3):
            model(X)
    return model


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(model: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


def test_parameters_without_gradients_are_frozen_and_buffers_go_with_them() -> None:
    model = net(0)
    assert frozen(model) == frozenset()
    model[0].requires_grad_(False)
    assert frozen(model) == {"0.weight", "0.bias"}
    model[1].requires_grad_(False)
    statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert frozen(model) == {"0.weight", "0.bias", "1.weight", "1.bias"} | statistics
    model[1].bias.requires_grad_(True)
    assert frozen(model) == {"0.weight", "0.bias", "1.weight"}


def test_tables_of_whole_numbers_go_with_the_parameters_beside_them() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Parameter(torch.arange(3), requires_grad=False)
            self.weight = nn.Parameter(torch.ones(3))

    model = Table()
    assert frozen(model) == frozenset()
    model.weight.requires_grad_(False)
    assert frozen(model) == {"codes", "weight"}


@pytest.mark.parametrize("width", [8, 12])
def test_a_transfer_leaves_frozen_tensors_alone(width: int) -> None:
    model = net(1, width)
    model[0].requires_grad_(False)
    before = state(model)
    report = transfer(trained(0), model, X)
    # The statistics are of what the frozen layer makes.
    assert changed(model, before) <= {"1.weight", "1.bias", "4.weight", "4.bias"}
    assert "4.weight" in changed(model, before)
    assert not report.exact
    assert "4 tensors are frozen and kept" in report.plan.doubts
    assert {"0.weight", "0.bias", "1.running_mean", "1.running_var"} <= set(report.missing_keys)
    transfer(trained(0), model, X, frozen="replace")
    assert {"0.weight", "1.running_mean"} <= changed(model, before)
    with pytest.raises(InvalidSetting, match="frozen"):
        transfer(trained(0), model, X, frozen="yes")


def test_calibrating_and_racing_leave_frozen_tensors_alone() -> None:
    inputs = torch.randn(320, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = inputs.mean((1, 2, 3)).gt(0).long()
    model = net(1, 6)
    for part in (model[0], model[1]):
        part.requires_grad_(False)
    before = state(model)
    kept = {name for name in before if name.startswith(("0.", "1."))}
    transfer(trained(0), model, X, calibrate=inputs)
    assert not changed(model, before) & kept
    batches = list(zip(inputs.split(16), labels.split(16), strict=True))
    transfer(trained(0), model, X, probe=batches, loss=nn.functional.cross_entropy, probe_steps=20)
    assert not changed(model, before) & kept


@contextlib.contextmanager
def keeper(where: str, folder: Path) -> Iterator[ModelKeeperClient]:
    """A client of a folder, or of a service of that folder."""
    with contextlib.ExitStack() as stack:
        uri = str(folder)
        if where == "service":
            local = LocalCoordinator(Settings(home=uri))
            uri = stack.enter_context(serving(local, ServiceSettings(port=0, auth=False)))
        yield stack.enter_context(ModelKeeperClient(uri, on_error="raise"))


@pytest.mark.parametrize("where", ["folder", "service"])
def test_a_query_leaves_frozen_tensors_alone_and_says_so(where: str, tmp_path: Path) -> None:
    with keeper(where, tmp_path) as client:
        client.register_model(trained(0), META | {"accuracy": 0.9}, example_inputs=X)
        model = net(1)
        model[:2].requires_grad_(False)
        before = state(model)
        _, answer = client.query_for_model(model, META, example_inputs=X)
        assert changed(model, before) == {"4.weight", "4.bias"}
        assert (answer.cold, answer.exact, answer.frozen) == (False, False, 7)
        assert "6 tensors are frozen and kept" in answer.doubts  # a count of batches changes no output
        assert "7 tensors are frozen and were kept" in str(answer)
        assert answer.actions["kept"]["tensors"] == 7
        model = net(1)
        model[:2].requires_grad_(False)
        _, answer = client.query_for_model(model, META, example_inputs=X, frozen="replace")
        assert (answer.exact, answer.frozen) == (True, 0)


def test_a_model_that_is_frozen_altogether_starts_as_it_is(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        record = client.register_model(trained(0), META | {"accuracy": 0.9}, example_inputs=X)
        model = net(1).requires_grad_(False)
        before = state(model)
        _, answer = client.query_for_model(model, META, example_inputs=X)
        assert answer.cold
        assert "every parameter of the model is frozen" in answer.reason
        assert not changed(model, before)
        assert record is not None
        assert not [event for event in client.coordinator.log() if event.action == "lent"]
        report = transfer(trained(0), model, X)
        assert not report.exact
        assert not changed(model, before)


def test_the_frozen_base_of_a_lora_model_is_kept(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )

    def bert(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model: nn.Module = transformers.BertForSequenceClassification(config)
        return model

    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        client.register_model(bert(0), META | {"accuracy": 0.9})
        lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
        model = peft.get_peft_model(bert(1), lora)
        before = state(model)
        still = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        _, answer = client.query_for_model(model, META)
        assert len(still) > 30
        assert not answer.cold, answer.reason
        assert not changed(model, before) & still
        assert frozen(model) >= still


def test_the_front_end_says_it() -> None:
    model = net(0)
    model[0].requires_grad_(False)
    assert FRONTEND.frozen(model) == {"0.weight", "0.bias"}
