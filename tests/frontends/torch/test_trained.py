"""A model that is trained already is recognised, a fresh one is left in peace."""

from pathlib import Path

import pytest
import torch
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.client import KeeperWarning
from modelkeeper.errors import InvalidSetting
from modelkeeper.frontends.torch.trained import trained
from tests.helpers import networks

META = {"data": "d", "task": "t"}
X = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = X.mean((1, 2, 3)).gt(0).long()


def net(norm: str = "batch", seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    norms = {"batch": nn.BatchNorm2d(16), "group": nn.GroupNorm(4, 16), "none": nn.Identity()}
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        norms[norm],
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 16),
        nn.ReLU(),
        nn.Linear(16, 2),
    )


def fit(model: nn.Module, steps: int = 60) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), Y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_training_leaves_signs(norm: str) -> None:
    model = net(norm)
    assert trained(model) == ""
    model(X)  # a trial run
    assert trained(model) == ""
    assert trained(fit(model)) != ""


def test_no_numbers_and_no_parameters_are_no_signs() -> None:
    with torch.device("meta"):
        assert trained(net()) == ""
    assert trained(nn.ReLU()) == ""


def test_initialisations_of_other_kinds_are_no_training() -> None:
    def dcgan(module: nn.Module) -> None:
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.02)
        elif isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.normal_(module.bias, std=1e-6)

    assert trained(net().apply(dcgan)) == ""


def test_what_was_loaded_from_a_checkpoint_is_recognised(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    fresh = transformers.BertModel(config)
    assert trained(fresh) == ""
    fresh.save_pretrained(tmp_path)
    assert "loaded from a checkpoint" in trained(transformers.BertModel.from_pretrained(tmp_path))


def test_a_query_warns_before_it_is_too_late_to_notice(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        client.register_model(fit(net()), META | {"accuracy": 0.9}, example_inputs=X)
        model = fit(net(seed=1))
        with pytest.warns(KeeperWarning, match="does not look freshly initialised.*batch norms"):
            _, answer = client.query_for_model(model, META, example_inputs=X)
        assert not answer.cold
        assert "were replaced" in answer.warnings[-1]
        model = fit(net(seed=1))
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        _, answer = client.query_for_model(model, META, example_inputs=X, trained="keep")
        assert answer.cold
        assert "trained already" in answer.reason
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
        _, answer = client.query_for_model(model, META, example_inputs=X, trained="replace")
        assert (answer.cold, answer.warnings) == (False, ())
        with pytest.raises(InvalidSetting, match="trained"):
            client.query_for_model(model, META, example_inputs=X, trained="maybe")


def test_networks_of_these_tests_are_fresh() -> None:
    made = [
        value for value in vars(networks).values() if isinstance(value, type) and issubclass(value, nn.Module)
    ]
    seen = 0
    for kind in made:
        try:
            model = kind()
        except TypeError:
            continue
        assert trained(model) == "", kind
        seen += 1
    assert seen
