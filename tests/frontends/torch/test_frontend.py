"""Models that training tools wrap or copy go by the name of the user's class, and their lineage is known."""

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from modelkeeper import ModelKeeperClient
from modelkeeper.frontends.torch.frontend import FRONTEND


class MyNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


WRAPPED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "nothing": lambda model: model,
    "parallel": nn.DataParallel,
    "distributed": nn.parallel.DistributedDataParallel,
    "compiled": lambda model: nn.Module.__call__(nn.Identity(), torch.compile(model, backend="eager")),
    "copied": copy.deepcopy,
    "pickled": lambda model: pickle.loads(pickle.dumps(model)),
    "averaged": AveragedModel,
    "copied, averaged, compiled, distributed": lambda model: nn.parallel.DistributedDataParallel(
        torch.compile(AveragedModel(copy.deepcopy(model)), backend="eager")
    ),
}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("how", WRAPPED)
def test_a_model_that_is_wrapped_or_copied_after_its_query_keeps_its_name_and_lineage(
    how: str, tmp_path: Path
) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        parent = client.register_model(MyNet(), {"accuracy": 0.5})
        assert parent is not None
        model, answer = client.query_for_model(MyNet(12))
        assert answer.parent == parent.id
        names = list(model.state_dict())
        wrapped = WRAPPED[how](model)
        wrapped(torch.ones(2, 4))
        record = client.register_model(wrapped, {"accuracy": 0.6})
    assert record is not None
    assert (record.name, record.parent, record.similarity) == ("MyNet", parent.id, answer.similarity)
    assert list(model.state_dict()) == names
    assert dict(FRONTEND.read(wrapped)).keys() == set(names)


def test_a_copy_of_a_model_has_no_lineage_in_another_zoo() -> None:
    with ModelKeeperClient(":memory:") as client, ModelKeeperClient(":memory:") as other:
        client.register_model(MyNet(), {"accuracy": 0.5})
        model, answer = client.query_for_model(MyNet(12))
        assert not answer.cold
        record = other.register_model(copy.deepcopy(model), {"accuracy": 0.6})
        assert record is not None
        assert not record.parent


def test_what_others_wrote_on_a_model_is_no_mark() -> None:
    model = MyNet()
    assert FRONTEND.mark_of(model) == ()
    model.__dict__["_modelkeeper"] = [1, 2]
    assert FRONTEND.mark_of(model) == ()
