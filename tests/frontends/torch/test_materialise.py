"""Models on the meta device get memory, what is lent, and initial values for the rest."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from modelkeeper import ModelKeeperClient, transfer
from modelkeeper.client import KeeperWarning
from modelkeeper.errors import CannotMaterialise, InvalidWeights
from modelkeeper.frontends.torch import FRONTEND, load
from modelkeeper.frontends.torch.materialise import is_deferred, materialise

META = {"data": "d", "task": "t"}
X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def net(width: int = 8, classes: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width * 36, classes),
    )


def deferred(**kwargs: int) -> nn.Sequential:
    with torch.device("meta"):
        return net(**kwargs)


class Positions(nn.Module):
    """Fills a parameter by itself when it is built: nothing says so afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6))
        self.out = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(x + self.table)
        return result


def test_a_query_fills_a_model_without_initialising_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        source = net()
        client.register_model(source, META | {"accuracy": 0.9}, example_inputs=X)
        model = deferred()
        drawn: list[str] = []
        monkeypatch.setattr(nn.Conv2d, "reset_parameters", lambda self: drawn.append("conv"))
        monkeypatch.setattr(nn.Linear, "reset_parameters", lambda self: drawn.append("linear"))
        warmed, answer = client.query_for_model(model, META, example_inputs=X)
        assert warmed is model
        assert answer.exact
        assert drawn == []
        assert not is_deferred(model)
        assert all(parameter.requires_grad for parameter in model.parameters())
        for part in (model, source):
            part.eval()
        torch.testing.assert_close(model(X), source(X))


@pytest.mark.parametrize("width", [8, 12])
def test_what_is_not_lent_is_initialised_by_the_rules_of_its_modules(width: int) -> None:
    model = deferred(width=width, classes=5)  # another head
    torch.manual_seed(3)
    report = transfer(net(), model, X)
    assert "4.weight" in report.missing_keys
    bound = (width * 36) ** -0.5
    weight = model.state_dict()["4.weight"]
    assert 0 < weight.abs().max() <= bound
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    assert model.state_dict()["1.num_batches_tracked"] == 0
    model(X).sum().backward()


def test_a_cold_start_materialises_as_building_would_have(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        torch.manual_seed(5)
        _, answer = client.query_for_model(model := deferred(), META, example_inputs=X, dry_run=True)
        assert answer.cold
        assert is_deferred(model)
        torch.manual_seed(5)
        _, answer = client.query_for_model(model, META, example_inputs=X)
    assert answer.cold
    torch.manual_seed(5)
    for name, tensor in net().state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_keeper_that_is_down_leaves_a_model_that_can_be_trained(tmp_path: Path) -> None:
    client = ModelKeeperClient("http://127.0.0.1:9", timeout=0.2, spool=tmp_path)
    with pytest.warns(KeeperWarning, match="starts cold"):
        client.query_for_model(model := deferred(), META, example_inputs=X)
    model(X).sum().backward()


def test_what_nobody_initialises_is_named_and_the_model_stays_as_it_was(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = Positions()
    before = [*model.parameters()]
    with pytest.raises(CannotMaterialise, match=r"initialise table of Positions.*reset_parameters"):
        materialise(model)
    assert all(now is old for now, old in zip(model.parameters(), before, strict=True))
    with ModelKeeperClient(tmp_path) as client:
        with pytest.warns(KeeperWarning, match="The model has no weights.*table"):
            _, answer = client.query_for_model(model, META, example_inputs=torch.zeros(1, 6))
        assert answer.cold
        assert "table" in answer.warnings[-1]
        client.register_model(
            source := Positions(), META | {"accuracy": 0.5}, example_inputs=torch.zeros(1, 6)
        )
        _, answer = client.query_for_model(model, META, example_inputs=torch.zeros(1, 6))
    assert answer.exact  # all of it is lent, so that no rule is needed
    assert torch.equal(model.table, source.table)


def test_weights_that_do_not_fit_leave_it_on_the_meta_device() -> None:
    model = deferred()
    with pytest.raises(InvalidWeights, match="shape"):
        load(model, {"4.weight": torch.zeros(3, 3)})
    assert is_deferred(model)


def test_rules_may_be_of_a_module_above() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.empty(3))
            self.part = nn.Linear(3, 3)
            self.apply(self._init_weights)

        def _init_weights(self, module: nn.Module) -> None:
            if module is self:
                nn.init.constant_(self.table, 7.0)
            if isinstance(module, nn.Linear):
                nn.init.constant_(module.weight, 2.0)

    with torch.device("meta"):
        model = Net()
    FRONTEND.materialise(model)
    assert (model.table == 7).all()
    assert (model.part.weight == 2).all()
    assert model.part.bias.abs().max() <= 3**-0.5


def test_tied_weights_recurrent_layers_and_attention_work_afterwards() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 8)
            self.lstm = nn.LSTM(8, 8, batch_first=True)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = nn.Linear(8, 11, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            hidden, _ = self.lstm(self.words(ids))
            mixed, _ = self.attention(hidden, hidden, hidden)
            result: torch.Tensor = self.out(mixed)
            return result

    ids = torch.arange(6).reshape(2, 3)
    with torch.device("meta"):
        model = Net()
    source = Net()
    assert transfer(source, model, ids).exact
    assert model.out.weight is model.words.weight
    torch.testing.assert_close(model(ids), source(ids))
    with torch.device("meta"):
        model = Net()
    FRONTEND.materialise(model)
    assert model.out.weight is model.words.weight
    model(ids).sum().backward()


@pytest.mark.parametrize("kind", ["Bert", "Llama", "GPT2", "T5", "ViT"])
def test_models_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    settings: dict[str, dict[str, Any]] = {
        "Bert": small | {"vocab_size": 50},
        "Llama": small | {"vocab_size": 50},
        "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50},
        "T5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 50},
        "ViT": small | {"image_size": 16, "patch_size": 8},
    }
    config = getattr(transformers, f"{kind}Config")(**settings[kind])
    build = getattr(transformers, f"{kind}Model")
    source = build(config).eval()
    with torch.device("meta"):
        model = build(config)
    report = transfer(source, model)
    assert report.exact
    model.eval()
    inputs = (
        {"pixel_values": torch.randn(1, 3, 16, 16)} if kind == "ViT" else {"input_ids": torch.arange(4)[None]}
    )
    inputs |= {"decoder_input_ids": torch.arange(3)[None]} if kind == "T5" else {}
    torch.testing.assert_close(model(**inputs)[0], source(**inputs)[0])
    with torch.device("meta"):
        model = build(config)
    FRONTEND.materialise(model)
    assert torch.isfinite(model(**inputs)[0]).all()
