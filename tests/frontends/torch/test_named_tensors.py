"""Models whose weights are no plain tensors are refused, with the layer and what to do."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from modelkeeper import KeeperWarning, ModelKeeperClient
from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.torch import describe


def quantised() -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3600, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        made: nn.Module = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            net, {nn.Linear}, dtype=torch.qint8
        )
    return made


def test_a_quantised_model_is_refused_by_the_name_of_its_layer() -> None:
    with pytest.raises(CannotDescribe, match=r"'3' is quantised.*before quantising"):
        describe(quantised())


def test_a_quantised_model_is_not_registered_without_its_head(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path) as client:
        with pytest.warns(KeeperWarning, match="'3' is quantised"):
            assert client.register_model(quantised(), {"accuracy": 0.5}) is None
        assert not client.coordinator.models()
