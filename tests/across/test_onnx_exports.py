"""torch models and what torch's exporter makes of them lend to each other."""

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from modelkeeper.frontends.onnx import OnnxModel, describe, load, read
from modelkeeper.frontends.torch import describe as describe_torch
from modelkeeper.frontends.torch import read as read_torch
from modelkeeper.graph.vocabulary import CONSTANTS
from modelkeeper.matching import align
from modelkeeper.warmstart.transfer import transfer
from modelkeeper.weights import Array
from tests.helpers.onnx_models import computed


class Network(nn.Module):
    """A residual network with norms, groups and a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=2), nn.BatchNorm2d(width), nn.Hardswish()
        )
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        hidden = self.stem(x)
        scores: Tensor = self.head(self.pool(hidden + self.inner(hidden)).flatten(1))
        return scores


class Texts(nn.Module):
    """Words, positions, a transformer's layer, a recurrent layer, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(20, 16), nn.Parameter(torch.randn(1, 6, 16))
        self.mix = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.cell, self.head = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.head(self.cell(self.mix(self.table(x) + self.positions))[0][:, -1])
        return scores


def image() -> tuple[nn.Module, Tensor]:
    return Network(), torch.randn(2, 3, 8, 8)


def text() -> tuple[nn.Module, Tensor]:
    return Texts(), torch.randint(0, 20, (2, 6))


def exported(model: nn.Module, inputs: Tensor, *, folded: bool) -> onnx.ModelProto:
    """The model by torch's older exporter, which needs no second to start."""
    file: Any = io.BytesIO()  # torch takes it, but does not say so
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (inputs,), file, dynamo=False, do_constant_folding=folded, opset_version=20)
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize(("make", "folded"), [(image, False), (image, True), (text, True)])
def test_a_model_and_its_export_lend_to_each_other(
    make: Callable[[], tuple[nn.Module, Tensor]], folded: bool
) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.1)
    model.eval()
    proto = exported(model, inputs, folded=folded)
    with torch.no_grad():
        expected = model(inputs).numpy()
    graph, other = describe_torch(model, inputs), describe(proto)
    assert not [note for note in other.notes if note.topic != CONSTANTS]
    assert align(graph, other).similarity > (0.85 if make is image and folded else 0.95)

    emptied = OnnxModel(proto)
    own = {name: np.array(array) for name, array in read(emptied)}
    load(emptied, {name: array + 1 for name, array in own.items()})
    report = transfer(graph, emptied, (inputs,), weights=dict(read_torch(model)))
    assert report.exact, report.plan.doubts
    _same(computed(emptied.proto, {proto.graph.input[0].name: inputs.numpy()}), expected)

    load(emptied, own)
    spoiled = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in spoiled.parameters():
            parameter.add_(1)
        assert transfer(emptied, spoiled, (inputs,)).exact
        _same(spoiled(inputs).numpy(), expected)


def _same(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
