"""The PyTorch front end passes the suite that every front end runs."""

import pytest
import torch
from torch import nn

from modelkeeper.frontends.torch import FRONTEND
from modelkeeper.testing import FrontendTests

pytestmark = pytest.mark.usefixtures("alone")


class TestPerceptron(FrontendTests):
    frontend = FRONTEND
    input_shape = (2, 5)

    def make(self, width: int, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 3))


class TestConvolutions(FrontendTests):
    frontend = FRONTEND
    input_shape = (2, 3, 8, 8)

    def make(self, width: int, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            stem = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()
            model = nn.Sequential(*stem, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 3))
            for name, tensor in model.state_dict().items():
                if "running" in name:
                    tensor.uniform_(0.5, 2.0)
            return model.eval()


class TestTokens(FrontendTests):
    """Inputs are whole numbers, and a table of embeddings is tied to the head."""

    frontend = FRONTEND
    input_shape = (2, 4)
    input_dtype = "int64"

    def make(self, width: int, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Tied(width)


class Tied(nn.Module):
    """An embedding whose table is also the head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.mix = nn.Embedding(11, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.head(torch.relu(self.mix(self.table(tokens))))
        return mixed
