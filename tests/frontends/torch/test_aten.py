"""ATen's names: what does one thing is one operation, however it is spelled."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modelkeeper import transfer
from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.aten import aten_operator, plain_arguments


class Between(nn.Module):
    """Two layers, and something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(6, 8), nn.Linear(8, 3), between

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(self.between(self.first(x)))
        return made


Change = Callable[[Tensor], Tensor]
SPELLED: dict[str, tuple[Change, Change]] = {
    "in place": (F.relu6, lambda x: F.relu6(x, inplace=True)),
    "in place, not tagged as pointwise": (F.gelu, lambda x: torch.ops.aten.gelu_.default(x)),
    "swapped axes": (
        lambda x: x.transpose(1, 2).flip(1).transpose(1, 2),
        lambda x: x.swapaxes(1, 2).flip(1).swapaxes(1, 2),
    ),
    "all axes reversed": (
        lambda x: x.permute(3, 2, 1, 0).flip(1).permute(3, 2, 1, 0),
        lambda x: torch.ops.aten.numpy_T(torch.ops.aten.numpy_T(x).flip(1)),
    ),
    "chunks": (lambda x: x.split(2, 1)[0], lambda x: torch.ops.aten.unsafe_chunk(x, 2, 1)[0]),
    "views": (
        lambda x: x.reshape(2, 4, 40).reshape(2, 4, 5, 8),
        lambda x: torch.ops.aten._unsafe_view(x, [2, 4, 5, 8]),
    ),
    "softmax": (lambda x: x.softmax(1), lambda x: torch.ops.aten._softmax(x, 1, False)),
    "copies": (lambda x: x, lambda x: x.clone().detach().contiguous()),
}


@pytest.mark.parametrize("name", SPELLED)
def test_two_spellings_give_one_graph(name: str) -> None:
    inputs = torch.zeros(2, 4, 5, 6)
    one, other = (describe(Between(change), inputs) for change in SPELLED[name])
    assert one == other
    assert not one.notes


def test_arguments_that_are_no_plain_data_are_left_out() -> None:
    operator = aten_operator(torch.ops.aten.native_group_norm.default)
    assert (operator.name, operator.known) == ("group_norm", True)
    given = {"group": 4, "eps": 1e-5, "dtype": torch.float32, "device": torch.device("cpu")}
    assert plain_arguments("group_norm", given) == {"num_groups": 4, "eps": 1e-5}


def test_what_the_vocabulary_does_not_know_keeps_its_name() -> None:
    operator = aten_operator(torch.ops.aten._fft_r2c.default)
    assert (operator.name, operator.known) == ("_fft_r2c", False)


def test_scalars_of_a_function_of_one_layer_are_part_of_it() -> None:
    """Else two models that compute different things would be one architecture."""
    inputs = torch.zeros(2, 6)
    changes: tuple[Change, Change] = (
        lambda x: torch.add(x, x.tanh()),
        lambda x: torch.add(x, x.tanh(), alpha=3),
    )
    graphs = [describe(Between(change), inputs) for change in changes]
    assert [graph.layers[2].inputs[0].via for graph in graphs] == [("add(_,tanh)",), ("add[3](_,tanh)",)]
    assert graphs[0].fingerprint != graphs[1].fingerprint


class Summed(nn.Module):
    """A layer, and the sum of its output with another layer's, or with a bias, by a factor."""

    def __init__(self, alpha: float, bare: bool) -> None:
        super().__init__()
        self.first, self.second, self.alpha, self.bare = nn.Linear(6, 8), nn.Linear(8, 8), alpha, bare

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return torch.add(x, self.second.bias if self.bare else self.second(x), alpha=self.alpha)


@pytest.mark.parametrize("bare", [False, True])
def test_the_factor_of_a_sum_is_part_of_it(bare: bool) -> None:
    inputs = torch.zeros(2, 6)
    plain, one, three = (describe(Summed(alpha, bare), inputs) for alpha in (1, 1.0, 3))
    assert plain == one
    assert [layer.attributes for layer in three.layers if layer.kind in ("add", "shift")] == [{"alpha": 3}]
    assert plain.fingerprint != three.fingerprint
    assert transfer(Summed(3, bare), Summed(3, bare), inputs).exact
    assert not transfer(Summed(1, bare), Summed(3, bare), inputs).exact
